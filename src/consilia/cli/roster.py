"""`consilia roster`: found a consortium, take members on, renew their certificates, throw one out."""

from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from consilia.cli import options, output
from consilia.cli import roster_words as words

if TYPE_CHECKING:
    from consilia.core.errors import Problem
    from consilia.core.randomness import SecretRng
    from consilia.transport.credentials.book import Book
    from consilia.transport.credentials.office import Office
    from consilia.transport.credentials.request import Request

app = typer.Typer(
    help="Who takes part in a consortium: keys, certificates and the signed roster of members.", no_args_is_help=True
)
Yes = Annotated[bool, typer.Option("--yes", metavar="", help="Ask nothing: fingerprints have been compared.")]
Consortium = Annotated[Path, typer.Option("--dir", metavar="DIR", help="The consortium's folder.")]
Member = Annotated[Path | None, typer.Option("--dir", metavar="DIR", help="The member's folder; NAME when absent.")]
Name = Annotated[str, typer.Argument(metavar="NAME", help="A member, as plans name it.")]


@app.command("init")
def init(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="A new folder for the consortium's keys.")],
    name: Annotated[
        str | None, typer.Option("--name", metavar="NAME", help="The consortium; DIR's name when absent.")
    ] = None,
    json: options.Json = False,
) -> None:
    """At the officer: found a consortium, with keys that sign its roster."""
    from consilia.transport.credentials.office import Office
    from consilia.transport.credentials.request import consortium_fingerprint

    office = Office.found(folder, folder.resolve().name if name is None else name, _secret(), _now())
    found = {"consortium": office.book.consortium, "folder": str(folder), "version": office.book.version,
             "fingerprint": consortium_fingerprint(office.key.public)}  # fmt: skip
    words.tell(found, json, [
        f"consortium   {found['consortium']}, in {folder}",
        f"fingerprint  {found['fingerprint']}",
        "",
        "consortium.key and ca.key never leave this machine; keep one copy on a medium in a safe.",
        "Next, at each member: consilia roster add NAME --role site (or coordinator, or operator)",
    ])  # fmt: skip


@app.command("add")
def add(
    name: Name,
    role: Annotated[
        Literal["site", "coordinator", "operator"] | None,
        typer.Option("--role", help="What the member is: a new member's keys are made."),
    ] = None,
    roster: Annotated[
        Path | None,
        typer.Option("--roster", metavar="FILE", help="Take this roster.json, which the consortium signed."),
    ] = None,
    folder: Member = None,
    yes: Yes = False,
    json: options.Json = False,
) -> None:
    """At a member: make its keys and a request (--role), then take the roster that came back (--roster)."""
    from consilia.core.errors import PlanError

    place = Path(name) if folder is None else folder
    if (role is None) == (roster is None):
        raise PlanError.of("consilia roster add", needs="--role for a new member, or --roster to take a roster",
                           got="neither" if role is None else "both",
                           hint="First --role; then, with the roster.json that comes back, --roster")  # fmt: skip
    if roster is not None:
        _take(name, place, roster, yes=yes, json=json)
        return
    if role is None:
        return
    from consilia.transport.credentials import member

    asked = member.join(place, name, role, _secret())
    words.tell(words.request(asked.request, asked.path), json, [
        f"{role:<11}  {name}, in {place}",
        f"fingerprint  {asked.request.fingerprint}",
        "",
        f"Next: send {asked.path} to the consortium's officer. It is public.",
        "The officer will ask for the fingerprint by telephone. Keys never leave this folder.",
        words.back(name, place),
    ])  # fmt: skip


@app.command("sign")
def sign(
    requests: Annotated[list[Path], typer.Argument(metavar="REQUEST...", help="Requests that members sent.")],
    folder: Consortium = Path("consortium"),
    yes: Yes = False,
    json: options.Json = False,
) -> None:
    """At the officer: take new members on, or renew certificates, in a new version of the roster."""
    from consilia.transport.credentials.files import locked
    from consilia.transport.credentials.office import Office

    wanted = _read(requests)
    with locked(folder):
        office = Office.open(folder)
        office.check(wanted)
        for request in wanted:
            if not office.has(request):
                words.confirm(_about(office, request), f"Does {request.name} read out these numbers?", yes=yes)
        office = office.sign(wanted, _now())
    _published(office, [request.name for request in wanted], json)


@app.command("revoke")
def revoke(
    name: Name,
    reason: Annotated[str, typer.Option("--reason", metavar="TEXT", help="Why; all members will read it.")],
    folder: Consortium = Path("consortium"),
    yes: Yes = False,
    json: options.Json = False,
) -> None:
    """At the officer: throw a member out for good; its keys never count again."""
    from consilia.transport.credentials.files import locked
    from consilia.transport.credentials.office import Office

    with locked(folder):
        office = Office.open(folder)
        revoked = office.revoked(name, reason, _now())
        words.confirm([f"{office.book.by_name[name].role:<11}  {name}, for good: {reason}"], "Revoke it?", yes=yes)
        office = office.publish(revoked)
    _published(office, [], json)


@app.command("renew")
def renew(name: Name, folder: Member = None, json: options.Json = False) -> None:
    """At a member: make a fresh key for TLS and a request; the old certificate works until the new roster is there."""
    from consilia.transport.credentials import member
    from consilia.transport.credentials.files import locked

    place = Path(name) if folder is None else folder
    with locked(place):
        asked = member.renew(place, name)
    words.tell(words.request(asked.request, asked.path), json, [
        f"renewal      {asked.request.role} {name}",
        f"fingerprint  {asked.request.fingerprint}",
        "",
        f"Next: send {asked.path} to the consortium's officer. It is public.",
        words.back(name, place),
        "Bring it to the coordinator at the same time: it then takes the new certificate only.",
    ])  # fmt: skip


@app.command("show")
def show(
    place: Annotated[Path, typer.Argument(metavar="DIR", help="A folder with a roster, or a roster.json.")] = Path(),
    json: options.Json = False,
) -> None:
    """List members, until when their certificates last, and who was revoked."""
    from consilia.cli.roster_table import document, print_table, waiting

    asked = waiting(place)
    if asked is not None:
        words.tell(words.request(asked.request, asked.path), json, [
            f"{asked.request.role:<11}  {asked.request.name}, which no roster has yet",
            f"fingerprint  {asked.request.fingerprint}",
            "",
            f"Next: send {asked.path} to the consortium's officer. It is public.",
        ])  # fmt: skip
        return
    found = document(place, _now())
    if json:
        output.emit(found)
    else:
        print_table(found)


def _take(name: str, place: Path, roster: Path, *, yes: bool, json: bool) -> None:
    from consilia.transport.credentials import member
    from consilia.transport.credentials.files import locked
    from consilia.transport.credentials.reading import shown, stamp
    from consilia.transport.credentials.request import consortium_fingerprint

    def believes(book: "Book") -> bool:
        lines = [f"consortium   {book.consortium}, {len(book.members)} members",
                 f"fingerprint  {consortium_fingerprint(book.public)}"]  # fmt: skip
        words.confirm(lines, "Does its officer read out these numbers?", yes=yes)
        return True

    with locked(place):
        taken = member.install(place, name, roster, _now(), believes)
    for warning in taken.warnings(_now()):
        output.say(warning, style="yellow")
    found = {"consortium": taken.book.consortium, "version": taken.book.version, "name": name, "role": taken.role,
             "until": stamp(taken.entry.until)}  # fmt: skip
    words.tell(found, json, [
        f"roster       version {taken.book.version} of {taken.book.consortium}, in {place}",
        f"certificate  until {shown(taken.entry.until)}",
        *words.then(taken.role, place),
    ])  # fmt: skip


def _read(paths: list[Path]) -> "list[Request]":
    """Read all requests, or tell every fault of every file."""
    from consilia.core.errors import StoreError
    from consilia.transport.credentials.request import Request

    found: list[Request] = []
    problems: list[Problem] = []
    for path in paths:
        try:
            found.append(Request.read(path))
        except StoreError as error:
            problems += error.problems
    if problems:
        raise StoreError(problems)
    return found


def _about(office: "Office", request: "Request") -> list[str]:
    kind = "renewal" if request.name in office.book.by_name else "new"
    return [f"{request.role:<11}  {request.name} ({kind})", f"fingerprint  {request.fingerprint}"]


def _published(office: "Office", names: list[str], json: bool) -> None:
    from consilia.transport.credentials.book import FILE
    from consilia.transport.credentials.request import consortium_fingerprint

    book, path = office.book, office.folder / FILE
    mark = consortium_fingerprint(book.public)
    found = {"consortium": book.consortium, "version": book.version, "members": len(book.members), "signed": names,
             "roster": str(path), "fingerprint": mark}  # fmt: skip
    words.tell(found, json, [
        f"roster       version {book.version} of {book.consortium}, {len(book.members)} members",
        "",
        f"Next: send {path} to the coordinator and to every member. It is public.",
        f"New members will ask for the consortium's fingerprint: {mark}",
    ])  # fmt: skip


def _secret() -> "SecretRng":
    import secrets

    from consilia.core.randomness import SecretRng

    return SecretRng(secrets.token_bytes(32))


def _now() -> datetime:
    return datetime.now(UTC).replace(microsecond=0)
