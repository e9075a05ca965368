"""Imitates containers: processes with a root, mounts, a user and an environment of their own, and names from a DNS server.

Everything runs in the network namespace of this process, on addresses of the loopback interface."""

import http.client
import os
import shlex
import shutil
import signal
import socket
import subprocess
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path

from common import LIMIT

PATH = "/opt/bin:{postgres}:/usr/sbin:/usr/bin"
USERS = {"root": 0, "haproxy": 99, "ostler": 990, "postgres": 999}


def wait_for(what, ask, limit=LIMIT):
    """Repeats until `ask` returns something true; returns that."""
    end = time.monotonic() + limit
    while not (found := ask()):
        if time.monotonic() > end:
            raise SystemExit(f"cluster: {what}: not within {limit} s")
        time.sleep(0.1)
    return found


class Names:
    """A DNS server with the names of the containers that run."""

    def __init__(self, search=""):
        self.addresses = {}
        self.search = search
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.socket.bind(("127.0.0.1", 53))
        threading.Thread(target=self.serve, daemon=True).start()

    def serve(self):
        while True:
            query, peer = self.socket.recvfrom(4096)
            labels, at = [], 12
            while query[at]:
                labels.append(query[at + 1 : at + 1 + query[at]].decode())
                at += 1 + query[at]
            question = query[12 : at + 5]
            address = self.addresses.get(".".join(labels).lower())
            is_ipv4 = query[at + 1 : at + 3] == b"\0\1"
            answers = b"\xc0\x0c\0\1\0\1\0\0\0\1\0\4" + socket.inet_aton(address) if address and is_ipv4 else b""
            head = query[:2] + (b"\x81\x80" if address else b"\x81\x83") + b"\0\1" + bytes([0, bool(answers)]) + bytes(4)
            self.socket.sendto(head + question + answers, peer)


@dataclass
class Container:
    """What a compose file or a manifest says about a container."""

    name: str
    argv: list
    env: dict
    uid: int
    gid: int
    #: The name that others resolve.
    domain: str
    group: int | None = None
    capabilities: list = field(default_factory=list)
    #: Sources, targets, and whether they are read-only.
    mounts: list = field(default_factory=list)
    tmpfs: list = field(default_factory=list)
    workdir: str = "/"
    #: Folders that a new container finds empty.
    temporary: list = field(default_factory=list)
    #: Commands, and ports with paths, that say whether it is ready.
    probes: list = field(default_factory=list)
    #: The command before a stop, and the seconds for both.
    before_stop: list = field(default_factory=list)
    grace: float = 10


class Running:
    """A container that runs."""

    next_address = 10

    def __init__(self, container, world):
        self.container, self.world = container, world
        Running.next_address += 1
        self.address = f"127.0.0.{Running.next_address}"
        self.log = world.work / f"{container.name}.log"
        root = world.work / "roots" / f"{container.name}-{Running.next_address}"
        root.mkdir(parents=True)
        argv = [self.address if word == "0.0.0.0" else word for word in container.argv]
        argv = world.imitate(container, argv, self.address)
        script = "\n".join(self.setup(root)) + f"\nexec chroot {root} {shlex.join(self.as_user(argv))}\n"
        with self.log.open("ab") as log:
            command = ["unshare", "--mount", "--uts", "--propagation", "private", "bash", "-euc", script]
            self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        world.names.addresses[container.domain] = self.address

    def setup(self, root):
        """The commands that make the root: what an image has, then the mounts, then read-only."""
        container, quote = self.container, shlex.quote
        yield f"hostname {container.name}; cd {root}; mount -t tmpfs -o mode=755 none {root}; cd {root}"
        yield "mkdir usr etc opt opt/bin run tmp proc dev var etc/ssl; ln -s ../run var/run"
        yield "for link in bin sbin lib lib64; do ln -s usr/$link $link; done"
        for file, text in self.etc().items():
            yield f"printf %s {quote(text)} > etc/{file}"
        yield "mount --bind /usr usr; mount -o remount,bind,ro usr; mount --bind /etc/ssl etc/ssl"
        yield "mount -t tmpfs -o mode=755 none usr/local"
        yield f"touch opt/bin/ostler; mount --bind {quote(str(self.world.program))} opt/bin/ostler"
        yield "mount -t proc none proc; mount --rbind /dev dev; mount -t tmpfs -o mode=1777 none dev/shm"
        mounts = [(target, None, False) for target in container.tmpfs]
        mounts += [(target, source, is_read_only) for source, target, is_read_only in container.mounts]
        for target, source, is_read_only in sorted(mounts, key=lambda mount: mount[0].count("/")):
            at = quote(str(root) + target)
            if source is None:
                yield f"mkdir -p {at}; mount -t tmpfs -o mode=1777 none {at}"
                continue
            make = f"mkdir -p {at}" if Path(source).is_dir() else f"mkdir -p $(dirname {at}); touch {at}"
            yield f"{make}; mount --bind {quote(str(source))} {at}"
            if is_read_only:
                yield f"mount -o remount,bind,ro {at}"
        yield f"mount -o remount,ro {root}"

    def etc(self):
        users = [f"{name}:x:{id}:{id}::/:/bin/sh\n" for name, id in USERS.items()]
        groups = [f"{name}:x:{id}:\n" for name, id in USERS.items()]
        search = f"search {self.world.names.search}\noptions ndots:5\n" if self.world.names.search else ""
        return {
            "passwd": "".join(users),
            "group": "".join(groups),
            "hosts": f"127.0.0.1 localhost\n{self.address} {self.container.name}\n",
            "nsswitch.conf": "hosts: files dns\n",
            "resolv.conf": f"nameserver 127.0.0.1\n{search}",
        }

    def as_user(self, argv):
        container = self.container
        capabilities = ",".join(["-all", *(f"+{name.lower()}" for name in container.capabilities)])
        groups = ["--clear-groups"] if container.group is None else [f"--groups={container.group}"]
        path = PATH.format(postgres=os.environ["OSTLER_TEST_POSTGRES"])
        env = {"PATH": path, "HOSTNAME": container.name, **container.env}
        return [
            *("setpriv", f"--reuid={container.uid}", f"--regid={container.gid}", *groups, "--no-new-privs"),
            *(f"--bounding-set={capabilities}", f"--inh-caps={capabilities}", "--"),
            *("env", "-i", f"--chdir={container.workdir}", *(f"{name}={value}" for name, value in env.items()), *argv),
        ]

    def run(self, argv):
        """Runs a command in the container, as a health check does."""
        enter = ["nsenter", f"--target={self.process.pid}", "--mount", "--uts", "--root", "--"]
        return subprocess.run(
            enter + self.as_user(argv), stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=LIMIT
        )

    def must_run(self, argv):
        done = self.run(argv)
        if done.returncode:
            raise SystemExit(f"cluster: {self.container.name}: {argv}: {done.stdout}{done.stderr}")
        return done.stdout

    def answers(self, port, path):
        """The status of a request, as the probes of Kubernetes send it."""
        connection = http.client.HTTPConnection(self.address, port, timeout=5)
        try:
            connection.request("GET", path)
            return connection.getresponse().status
        except OSError:
            return None
        finally:
            connection.close()

    def is_ready(self):
        if self.process.poll() is not None:
            raise SystemExit(f"cluster: {self.container.name} ended: {self.log.read_text()}")
        for probe in self.container.probes:
            if isinstance(probe, tuple):
                if self.answers(*probe) != 200:
                    return False
            elif self.run(probe).returncode:
                return False
        return True

    def become_ready(self):
        wait_for(f"{self.container.name} is ready", self.is_ready)
        return self

    def ends(self, limit=LIMIT):
        """Waits for the end; returns the exit code."""
        return self.process.wait(timeout=limit)

    def kill(self):
        self.gone(signal.SIGKILL)

    def stop(self, with_signal=signal.SIGTERM):
        """Stops the container within its grace period."""
        end = time.monotonic() + self.container.grace
        if self.container.before_stop:
            self.must_run(self.container.before_stop)
        code = self.gone(with_signal, end - time.monotonic())
        if code not in (0, -with_signal):
            raise SystemExit(f"cluster: {self.container.name} ended with {code}: {self.log.read_text()}")
        for folder in self.container.temporary:
            for entry in folder.iterdir():
                shutil.rmtree(entry) if entry.is_dir() and not entry.is_symlink() else entry.unlink()

    def gone(self, with_signal, limit=LIMIT):
        if self.world.names.addresses.get(self.container.domain) == self.address:
            del self.world.names.addresses[self.container.domain]
        if self.process.poll() is None:
            self.process.send_signal(with_signal)
        return self.process.wait(timeout=limit)
