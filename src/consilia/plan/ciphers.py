"""From a secure sum's public numbers to the numbers of a homomorphic scheme, which refuses what it cannot hold."""

from consilia.crypto.paillier_lanes import Lanes
from consilia.crypto.rlwe_parameters import RlweParameters
from consilia.plan.secure import SecureTerms


def rlwe_parameters(terms: SecureTerms) -> RlweParameters:
    """Return the numbers of a plan's threshold encryption; its sites are all asked in every round.

    Raises:
        PlanError: If sums do not fit.
    """
    return RlweParameters(
        sites=terms.cohort, threshold=terms.threshold, count=terms.cohort, bound=terms.value_bound, fewest=terms.fewest
    )


def paillier_lanes(terms: SecureTerms, bits: int, sites: int) -> Lanes:
    """Return how a plan's vectors lie in Paillier plaintexts of a modulus of `bits` bits.

    Updates are asked of a cohort, scores of all `sites`.

    Raises:
        PlanError: If sums do not fit.
    """
    return Lanes(bits, terms.value_bound, sites)
