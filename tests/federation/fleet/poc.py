"""NVFlare's own proof-of-concept mode: a server and clients, each a process with mutual TLS, on this machine."""

import json
import os
import re
import shutil
import signal
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from tests.transport.credentials.world import World

from consilia.federation.fleet.job import CONTROLLER, SITE
from consilia.federation.fleet.member import FOLDER

ROOT = Path(__file__).resolve().parents[3]
VENV = Path(os.environ.get("CONSILIA_NVFLARE", ROOT / ".venv-nvflare"))
LONG = 300  # seconds: a dozen processes begin, and these machines may be slow
ADMIN = "admin@nvidia.com"


class Poc:
    """A fleet of a server and clients.

    Args:
        folder: A fresh one.
        clients: Site, as the roster calls it -> client, as NVFlare calls it.
    """

    def __init__(self, folder: Path, clients: Mapping[str, str]) -> None:
        self.folder, self.clients = folder, clients
        self.environment = {
            **os.environ, "HOME": str(folder), "NVFLARE_POC_WORKSPACE": str(folder / "poc"), "OMP_NUM_THREADS": "1",
            "PATH": f"{VENV / 'bin'}{os.pathsep}{os.environ['PATH']}", "PYTHONPATH": str(ROOT / "src"),
        }  # fmt: skip
        self.nvflare("poc", "prepare", "--force", "-c", *clients.values())
        self.kits = folder / "poc" / "example_project" / "prod_00"

    def nvflare(self, *words: str) -> str:
        """Run one of NVFlare's commands."""
        done = subprocess.run(
            [VENV / "bin" / "nvflare", *words], env=self.environment, cwd=self.folder, capture_output=True, text=True,
            check=False, timeout=LONG, stdin=subprocess.DEVNULL,
        )  # fmt: skip
        assert done.returncode == 0, f"nvflare {' '.join(words)}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    def settle(self, world: World, coordinator: str) -> None:
        """Give every member its own folder, as the guide says: keys, policy, and the one class that jobs may name."""
        for name, client, kind in [
            (coordinator, "server", CONTROLLER),
            *((s, c, SITE) for s, c in self.clients.items()),
        ]:
            local = self.kits / client / "local"
            shutil.copytree(world.folder / name, local / FOLDER)
            known = local / "resources.json"
            resources = json.loads((known if known.exists() else local / "resources.json.default").read_text())
            resources["class_allow_list"] = [kind]
            resources["allow_log_streaming"] = False
            resources["components"] = [one for one in resources["components"] if one["id"] != "site_log_streamer"]
            known.write_text(json.dumps(resources))
            rights = (local / "authorization.json.default").read_text().replace('"byoc": "any"', '"byoc": "none"')
            (local / "authorization.json").write_text(rights)

    @contextmanager
    def running(self) -> Iterator[None]:
        """Start server and clients, and end whatever is left of them."""
        with (self.folder / "start.log").open("wb") as log:
            starter = subprocess.Popen(
                [VENV / "bin" / "nvflare", "poc", "start", "--timeout", str(LONG)], env=self.environment, stdout=log,
                stderr=log, stdin=subprocess.DEVNULL, cwd=self.folder, start_new_session=True,
            )  # fmt: skip
        try:
            assert starter.wait(LONG) == 0, (self.folder / "start.log").read_text()
            yield
        finally:
            for pid in _session(starter.pid):
                os.kill(pid, signal.SIGKILL)
            if starter.poll() is None:
                starter.wait(LONG)

    def run(self, job: Path) -> tuple[str, Path]:
        """Submit a job and wait for its end; return what became of it, and the folder that its operator is given."""
        kit = ["--startup-kit", str(self.kits / ADMIN)]
        number = re.search(r"job_id: (\S+)", self.nvflare("job", "submit", "-j", str(job), *kit))
        assert number is not None
        ended = self.nvflare("job", "wait", number[1], "--timeout", str(LONG), *kit)
        self.nvflare("job", "download", number[1], "-o", str(self.folder / "results"), *kit)
        return ended, self.folder / "results"

    def log(self, member: str) -> str:
        """Return what a member's processes logged."""
        return "\n".join(path.read_text() for path in sorted((self.kits / member).rglob("log.txt")))


def _session(session: int) -> list[int]:
    found = []
    for place in Path("/proc").glob("[0-9]*/stat"):
        try:
            words = place.read_text().rpartition(")")[2].split()
        except (FileNotFoundError, ProcessLookupError):
            continue
        if int(words[3]) == session and words[0] != "Z":
            found.append(int(place.parent.name))
    return found
