"""Keys, signatures, sealing, secret sharing, encryption and attestation: primitives, without I/O."""
