"""Small images for tests, made of the host's busybox, and a registry on loopback that serves one."""

import hashlib
import io
import json
import shutil
import tarfile
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from hub_server.sandbox_node.images.references import host_architecture

Member = tuple[tarfile.TarInfo, bytes]
_APPLETS = ("sh", "echo", "cat", "ls", "mkdir", "touch", "id", "env", "sleep", "rm", "dd", "pwd", "wc", "head", "true")


def member(name: str, data: bytes = b"", **facts: object) -> Member:
    """Return one entry of an archive; `facts` are attributes of TarInfo."""
    info = tarfile.TarInfo(name)
    info.size, info.mode = len(data), 0o644
    for fact, value in facts.items():
        setattr(info, fact, value)
    return info, data


def folder(name: str) -> Member:
    """Return the entry of a folder."""
    return member(name, type=tarfile.DIRTYPE, mode=0o755)


def link(name: str, target: str, kind: bytes = tarfile.SYMTYPE) -> Member:
    """Return the entry of a symbolic (or by `kind` hard) link."""
    return member(name, type=kind, linkname=target)


def busybox_root() -> list[Member]:
    """Return a root file system: busybox under its names, and what names users."""
    program = shutil.which("busybox")
    if program is None:
        pytest.skip("busybox is not installed")
    return [
        folder("bin"), folder("etc"), member("bin/busybox", Path(program).read_bytes(), mode=0o755),
        *[link(f"bin/{name}", "busybox") for name in _APPLETS],
        member("etc/passwd", b"root:x:0:0:root:/root:/bin/sh\nuser:x:1000:1000::/:/bin/sh\n"),
        member("etc/group", b"root:x:0:\nuser:x:1000:\n"), member("etc/made-of", b"busybox\n"),
    ]  # fmt: skip


def tar(path: Path, members: Iterable[Member], mode: str = "w") -> Path:
    """Write an archive, by `mode` a compressed one."""
    with tarfile.open(path, mode) as archive:
        for info, data in members:
            archive.addfile(info, io.BytesIO(data))
    return path


def layout(target: Path, layers: list[list[Member]], *, config: dict[str, object] | None = None, **image: str) -> Path:
    """Write an OCI layout of one image, named `made` in its index."""
    blobs = target / "blobs" / "sha256"
    blobs.mkdir(parents=True)

    def put(data: bytes, media_type: str) -> dict[str, object]:
        name = hashlib.sha256(data).hexdigest()
        (blobs / name).write_bytes(data)
        return {"mediaType": f"application/vnd.oci.image.{media_type}", "digest": f"sha256:{name}", "size": len(data)}

    described = []
    for number, members in enumerate(layers):
        file = tar(target / f"{number}.tar", members)
        described.append(put(file.read_bytes(), "layer.v1.tar"))
        file.unlink()
    diffs = {"type": "layers", "diff_ids": [layer["digest"] for layer in described]}
    facts = {"architecture": host_architecture(), "os": "linux", "config": config or {}, "rootfs": diffs, **image}
    config_blob = put(json.dumps(facts).encode(), "config.v1+json")
    manifest = {"schemaVersion": 2, "mediaType": "application/vnd.oci.image.manifest.v1+json"}
    found = put(json.dumps({**manifest, "config": config_blob, "layers": described}).encode(), "manifest.v1+json")
    found["annotations"] = {"org.opencontainers.image.ref.name": "made"}
    (target / "index.json").write_text(json.dumps({"schemaVersion": 2, "manifests": [found]}))
    (target / "oci-layout").write_text('{"imageLayoutVersion": "1.0.0"}')
    return target


class StaticRegistry:
    """A registry that serves one layout's image under one repository and tag, and counts what it was asked."""

    def __init__(self, files: Path, repository: str, tag: str) -> None:
        self.asked: list[str] = []
        index = json.loads((files / "index.json").read_bytes())["manifests"][0]
        registry = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                registry.asked.append(self.path)
                kind, _, version = self.path.removeprefix(f"/v2/{repository}/").partition("/")
                if self.path == "/v2/":
                    self.answer(200, b"{}", "application/json")
                elif kind == "manifests" and version in (tag, index["digest"]):
                    self.answer(200, self.blob(index["digest"]), index["mediaType"])
                elif kind == "blobs" and self.has(version):
                    self.answer(200, self.blob(version), "application/octet-stream")
                else:
                    unknown = {"errors": [{"code": "MANIFEST_UNKNOWN", "message": "manifest unknown"}]}
                    self.answer(404, json.dumps(unknown).encode(), "application/json")

            do_HEAD = do_GET

            def has(self, digest: str) -> bool:
                return (files / "blobs" / digest.replace(":", "/")).is_file()

            def blob(self, digest: str) -> bytes:
                return (files / "blobs" / digest.replace(":", "/")).read_bytes()

            def answer(self, status: int, body: bytes, media_type: str) -> None:
                self.send_response(status)
                self.send_header("Content-Type", media_type)
                self.send_header("Content-Length", str(len(body)))
                self.send_header("Docker-Distribution-Api-Version", "registry/2.0")
                self.end_headers()
                if self.command == "GET":
                    self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.address = f"127.0.0.1:{self.server.server_port}"


@contextmanager
def registry_of(files: Path, repository: str, tag: str) -> Iterator[StaticRegistry]:
    """Serve a layout as a registry on loopback."""
    registry = StaticRegistry(files, repository, tag)
    thread = threading.Thread(target=registry.server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield registry
    finally:
        registry.server.shutdown()
        thread.join()
        registry.server.server_close()
