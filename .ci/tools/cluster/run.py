"""Runs the containers of examples/cluster, and does with them what users do: see .ci/cluster."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

from common import LIMIT, examples, fail, run
from containers import Running, wait_for
from described import World, of_compose, of_kubernetes

BALANCER = "https://localhost:8443"


class Cluster:
    """The containers of one kind of file, while they run."""

    def __init__(self, kind, program):
        self.kind, self.program = kind, program
        self.work = Path(tempfile.mkdtemp(prefix="ostler-cluster-"))
        self.work.chmod(0o755)
        folder = examples(self.work)
        if kind == "compose":
            self.world = World(self.work, program)
            containers = of_compose(folder, self.world)
            created = Running(containers.pop("secrets"), self.world)
            created.ends() == 0 or fail(f"secrets: {created.log.read_text()}")
            self.secrets = self.work / "volumes/secrets-ostler"
        else:
            self.world = World(self.work, program, search="ostler.svc.cluster.local svc.cluster.local cluster.local")
            containers = of_kubernetes(folder, self.world, "ostler")
            self.secrets = folder / "secrets/ostler"
        self.hosts = {name: one for name, one in containers.items() if name.startswith("ostler-")}
        len(self.hosts) == 3 or fail(f"{kind}: there are {len(self.hosts)} hosts")
        others = [one for name, one in containers.items() if name not in self.hosts]
        self.database, self.balancer = sorted(others, key=lambda one: one.name, reverse=True)
        self.token = (self.secrets / "token").read_text()
        self.running = {}

    def start(self):
        self.database = Running(self.database, self.world).become_ready()
        # All at the same time, on an empty database.
        for name in self.hosts:
            self.running[name] = Running(self.hosts[name], self.world)
        self.balancer = Running(self.balancer, self.world)
        for one in [*self.running.values(), self.balancer]:
            one.become_ready()
        self.wait_for_hosts(3)

    def wait_for_hosts(self, count):
        """Waits until so many hosts have answered the balancer."""

        def seen():
            return len({self.host_of_page() for _ in range(6)} - {None}) == count

        wait_for(f"{count} hosts behind the balancer", seen)

    def host_of_page(self):
        """The host that a new browser gets, by the cookie of the balancer."""
        status, headers, _ = self.request("GET", "/api/ready")
        found = re.search(r"ostler-host=([\w-]+)", headers.get("set-cookie", ""))
        return found[1] if status == 200 and found else None

    def environment(self):
        return {
            "PATH": os.environ["PATH"],
            "HOME": str(self.work),
            "SSL_CERT_FILE": str(self.secrets / "authority.pem"),
            "OSTLER_TOKEN": self.token,
        }

    def ostler(self, *command):
        """Runs a command of a user elsewhere, through the balancer."""
        return run(self.program, *command, "--remote", BALANCER, env=self.environment())

    def request(self, method, path, headers=(), body=None):
        """A request through the balancer, over HTTP/2: its status, its headers and its body."""
        command = ["curl", "--silent", "--include", "--http2", "--request", method]
        command += ["--cacert", self.secrets / "authority.pem"]
        for header in headers:
            command += ["--header", header]
        if body is not None:
            command += ["--header", "content-type: application/json", "--data", body]
        text = run(*command, f"{BALANCER}{path}")
        head, _, body = text.replace("\r\n", "\n").partition("\n\n")
        first, *lines = head.split("\n")
        pairs = [line.partition(": ") for line in lines]
        read = {}
        for name, _, value in pairs:
            read[name.lower()] = f"{read[name.lower()]}; {value}" if name.lower() in read else value
        return int(first.split()[1]), read, body

    def send(self, session, text):
        """Sends a message to a session, which answers with it."""
        answer = self.ostler("session", "send", *session, text)
        text.removeprefix("/slow 5s ") in answer or fail(f"{session}: {answer}")

    def owner(self, session):
        """The host that has a session."""
        sql = f"SELECT owner_id FROM ostler.session_heads WHERE session = '{session}' AND owner IS NOT NULL"
        return self.database.must_run(["psql", "-h", "/var/run/postgresql", "-U", "ostler", "-Atc", sql, "ostler"]).strip()

    def sessions(self):
        listed = json.loads(self.ostler("session", "list", "--json"))["sessions"]
        return [session["uri"].split(":/", 1)[1] for session in listed]

    def new_session(self, text):
        """Creates a session; returns its id."""
        before = set(self.sessions())
        self.send(["--new"], text)
        (created,) = set(self.sessions()) - before
        return created


def is_confined(cluster):
    """The hosts run as user 990, with a root and secrets that they cannot change."""
    for host in cluster.running.values():
        host.must_run(["sh", "-c", 'test "$(id -u):$(id -g)" = 990:990 && touch /tmp/x /var/lib/ostler/workspace/x'])
        for file in ["/x", "/usr/x", "/etc/ostler-cluster/config.json", "/run/secrets/ostler/token"]:
            host.run(["touch", file]).returncode or fail(f"{host.container.name} can write {file}")
    # One folder of files for all.
    first, second, _ = cluster.running.values()
    first.must_run(["sh", "-c", "echo shared >/var/lib/ostler/workspace/shared"])
    second.must_run(["grep", "shared", "/var/lib/ostler/workspace/shared"])


def signs_in(cluster):
    """A page signs in, and stays signed in although there are three hosts."""
    page = ["sec-fetch-site: same-origin", f"origin: {BALANCER}"]
    status, headers, body = cluster.request("POST", "/api/sign-in", page, json.dumps({"token": cluster.token}))
    status == 200 or fail(f"sign-in: {status} {body}")
    cookies = "; ".join(re.findall(r"(ostler-[\w-]+=[^;]+)", headers["set-cookie"]))
    cookies.count("=") == 2 and "Secure" in headers["set-cookie"] or fail(f"sign-in: {headers}")
    for _ in range(6):
        status, _, body = cluster.request("GET", "/api/me", [*page, f"cookie: {cookies}"])
        status == 200 or fail(f"signed in: {status} {body}")
    status, _, body = cluster.request("GET", "/plugins/console/")
    status == 200 and "<html" in body or fail(f"console: {status} {body}")


def refuses(cluster):
    """The balancer passes neither requests without a token nor the connections of hosts."""
    for path, expected in [("/api/me", 401), ("/cluster/link", 403), ("/api/health", 200)]:
        status, _, body = cluster.request("GET", path)
        status == expected or fail(f"{path}: {status} {body}")


def adds_webhook(cluster):
    """An endpoint that one host adds exists on all; returns its secret."""
    first = next(iter(cluster.running.values()))
    added = first.must_run(["ostler", "webhook", "add", "in", "--automation", "--prompt", "call {{event.n}}"])
    f"{BALANCER}/plugins/webhook/in" in added or fail(f"webhook: {added}")
    return re.search(r"Bearer ([^\s\"']+)", added)[1]


def calls(cluster, secret, numbers):
    """Webhook calls are accepted, and each starts one run that ends."""
    for number in numbers:
        header = f"authorization: Bearer {secret}"
        status, _, body = cluster.request("POST", "/plugins/webhook/in", [header], json.dumps({"n": number}))
        status == 202 or fail(f"call {number}: {status} {body}")

    def ended():
        runs = json.loads(cluster.ostler("automation", "runs", "--json"))["runs"]
        events = sorted(run["event"]["n"] for run in runs if run["state"] == "completed")
        return set(numbers) <= set(events) and len(events) == len(set(events))

    wait_for(f"runs of {numbers}", ended)


def scenario(cluster, part):
    cluster.start()
    is_confined(cluster)
    refuses(cluster)
    signs_in(cluster)
    secret = adds_webhook(cluster)
    calls(cluster, secret, [1, 2, 3])
    took = None
    if part != "start":
        sessions = [cluster.new_session(f"session {at}") for at in range(3)]
        lost, took = loses_a_host(cluster, sessions, secret)
        if part == "whole":
            comes_back(cluster, lost)
            stops_a_host(cluster, sessions, secret)
    cluster.token in cluster.balancer.log.read_text() and fail("the log of the balancer contains a token")
    for one in cluster.running.values():
        one.stop()
    cluster.balancer.gone(signal.SIGUSR1)
    cluster.database.gone(signal.SIGINT)
    return took


def loses_a_host(cluster, sessions, secret):
    """A host is killed: another one continues its session, and calls are still accepted."""
    lost = cluster.owner(sessions[0])
    begun = time.monotonic()
    cluster.running.pop(lost).kill()
    calls(cluster, secret, [4])
    cluster.send([sessions[0]], "after the loss")
    took = time.monotonic() - begun
    cluster.owner(sessions[0]) != lost or fail(f"{lost} was killed and still has the session")
    cluster.wait_for_hosts(2)
    return lost, took


def comes_back(cluster, lost):
    """The host that was killed is started again, with another address."""
    cluster.running[lost] = Running(cluster.hosts[lost], cluster.world).become_ready()
    cluster.wait_for_hosts(3)


def stops_a_host(cluster, sessions, secret):
    """A host is stopped as for an upgrade, while a turn runs there."""
    created = set(cluster.sessions())
    answers = []
    slow = threading.Thread(target=lambda: answers.append(cluster.send(["--new"], "/slow 5s was not disturbed")))
    slow.start()
    (busy,) = wait_for("the slow turn", lambda: set(cluster.sessions()) - created)
    stopped = wait_for("its host", lambda: cluster.owner(busy))
    own = cluster.running[stopped]
    stopping = threading.Thread(target=own.stop)
    stopping.start()
    wait_for("the drain", lambda: own.answers(9187, "/api/ready") in (503, None))
    calls(cluster, secret, [5, 6])
    for session in sessions:
        cluster.send([session], "during the drain")
    slow.join(LIMIT)
    stopping.join(own.container.grace)
    answers == [None] or fail("a turn was disturbed by the drain of its host")
    own.process.poll() == 0 or fail(f"{stopped} ended with {own.process.poll()}: {own.log.read_text()}")
    cluster.send([busy], "after the stop")
    cluster.running[stopped] = Running(cluster.hosts[stopped], cluster.world).become_ready()
    cluster.wait_for_hosts(3)
    calls(cluster, secret, [7])


def main():
    kind, part, program = sys.argv[1:]
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    begun = time.monotonic()
    cluster = Cluster(kind, Path(program))
    try:
        took = scenario(cluster, part)
    except BaseException:
        for log in sorted(cluster.work.glob("*.log")):
            print(f"-- {log.name}", log.read_text()[-3000:], sep="\n", file=sys.stderr)
        raise
    finally:
        shutil.rmtree(cluster.work, ignore_errors=True)
    done = ["three hosts serve clients and calls"]
    if took is not None:
        done.append(f"one is killed and its session continues after {took:.1f} s")
    if part == "whole":
        done.append("it comes back, and one is stopped while a turn runs")
    print(f"cluster: {kind}: {', '.join(done)}; {time.monotonic() - begun:.0f} s")


main()
