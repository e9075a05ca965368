"""The containers that the compose file and the manifests of examples/cluster describe."""

import os
import re
import shutil

import yaml
from common import LIMIT, documents, fail
from containers import Container, Names

#: What an image says about its containers: the program, the user, and the folder.
IMAGES = {
    "ostler": (["ostler"], "990:990", "/var/lib/ostler/workspace"),
    "postgres": ([], "999:999", "/"),
    "haproxy": (["haproxy", "-W", "-db", "-f", "/usr/local/etc/haproxy/haproxy.cfg"], "99:99", "/"),
}
#: Creates the database, as the image of PostgreSQL does before it runs a command.
CREATE = """
export PGDATA=${PGDATA:-/var/lib/postgresql/data} LANG=C.UTF-8
if ! [ -s "$PGDATA/PG_VERSION" ]; then
    mkdir -p "$PGDATA"; chmod 700 "$PGDATA"
    initdb --username="$POSTGRES_USER" --pwfile="$POSTGRES_PASSWORD_FILE" --auth-local=trust --auth-host=scram-sha-256
    echo 'host all all all scram-sha-256' >>"$PGDATA/pg_hba.conf"
    pg_ctl start --wait --options="-c listen_addresses=''"
    createdb --username="$POSTGRES_USER" "$POSTGRES_DB"
    pg_ctl stop
fi
exec "$@"
"""


class World:
    """What all containers share."""

    def __init__(self, work, program, search=""):
        self.work, self.program, self.names = work, program, Names(search)

    def imitate(self, container, argv, address):
        """The command of a container, with what its image does beside it, on its address of the loopback interface."""
        if argv[0] == "postgres":
            return ["bash", "-euc", CREATE, "create", *argv, "-c", f"listen_addresses=127.0.0.1,{address}"]
        return argv

    def folder(self, *names, owner=None, mode=None, group=None):
        at = self.work.joinpath(*names)
        if not at.exists():
            at.mkdir(parents=True)
            if owner is not None:
                os.chown(at, owner, owner)
            if group is not None:
                os.chown(at, 0, group)
            if mode is not None:
                at.chmod(mode)
        return at


def of_compose(folder, world):
    """The containers of the compose file, with those of `secrets` first."""
    found = {}
    for name, service in yaml.safe_load((folder / "compose.yaml").read_text())["services"].items():
        program, user, workdir = IMAGES[service["image"].split(":")[0]]
        uid, gid = map(int, service.get("user", user).split(":"))
        mounts = []
        if service["image"].startswith("ostler") and "entrypoint" not in service:
            # A volume of the image that the file does not name.
            mounts.append((world.folder("anonymous", name, owner=990), "/etc/ostler", False))
        for volume in service["volumes"]:
            source, target, *mode = volume.split(":")
            at = folder / source if source.startswith(".") else new_volume(world, source, target)
            mounts.append((at.resolve(), target, mode == ["ro"]))
        service["read_only"] and service["cap_drop"] == ["ALL"] or fail(f"compose.yaml: {name} is not confined")
        found[name] = Container(
            name=service.get("hostname", name),
            domain=name,
            argv=service.get("entrypoint", program) + service.get("command", []),
            env={"HOME": "/var/lib/ostler"} | service.get("environment", {}),
            uid=uid,
            gid=gid,
            capabilities=service.get("cap_add", []),
            mounts=mounts,
            tmpfs=service.get("tmpfs", []),
            probes=[health["test"][1:]] if (health := service.get("healthcheck")) else [],
            # As docs/cluster.md says.
            before_stop=["ostler", "cluster", "drain"] if name.startswith("ostler-") else [],
            grace=seconds(service.get("stop_grace_period", "10s")) + LIMIT * name.startswith("ostler-"),
            workdir="/" if "entrypoint" in service else workdir,
        )
    return found


def seconds(text):
    return int(text[:-1]) * {"s": 1, "m": 60}[text[-1]]


def new_volume(world, name, target):
    """A named volume, which gets the content of the image when a container mounts it the first time."""
    is_new = not (world.work / "volumes" / name).exists()
    owner = {"/var/lib/ostler": 990, "/var/lib/postgresql/data": 999}.get(target)
    at = world.folder("volumes", name, owner=owner)
    if is_new and target == "/var/lib/ostler":
        for inner in ["workspace", ".config"]:
            world.folder("volumes", name, inner, owner=990)
        (at / ".config/ostler").symlink_to("/etc/ostler")
    return at


def of_kubernetes(folder, world, namespace):
    """The containers of the manifests: those of all hosts, and one balancer."""
    kustomization = yaml.safe_load((folder / "kustomization.yaml").read_text())
    namespace == kustomization["namespace"] or fail(f"kustomization.yaml: the namespace is not {namespace}")
    files = {}
    for kind, key in [("configMap", "configMapGenerator"), ("secret", "secretGenerator")]:
        for made in kustomization[key]:
            files[kind, made["name"]] = [folder / file for file in made["files"]]
    found = {}
    for resource in kustomization["resources"]:
        for object in documents(folder / resource):
            if object["kind"] not in ("StatefulSet", "Deployment"):
                continue
            name, spec = object["metadata"]["name"], object["spec"]
            is_stateful = object["kind"] == "StatefulSet"
            for at in range(spec["replicas"] if is_stateful else 1):
                pod = f"{name}-{at}" if is_stateful else name
                suffix = f".{spec['serviceName']}" if is_stateful and spec["replicas"] > 1 else ""
                host = pod if suffix or not is_stateful else spec["serviceName"]
                domain = f"{host}{suffix}.{namespace}.svc.cluster.local"
                found[pod] = of_pod(world, files, pod, domain, namespace, spec)
    return found


def probes(container):
    ports = {port["name"]: port["containerPort"] for port in container["ports"]}
    for name in ["startupProbe", "livenessProbe", "readinessProbe"]:
        probe = container.get(name, {})
        if "exec" in probe:
            yield probe["exec"]["command"]
        elif "httpGet" in probe:
            yield (ports[probe["httpGet"]["port"]], probe["httpGet"]["path"])


def of_pod(world, files, pod, domain, namespace, spec):
    within, security = spec["template"]["spec"], spec["template"]["spec"]["securityContext"]
    (container,) = within["containers"]
    confined = container["securityContext"]
    confined["readOnlyRootFilesystem"] and confined["capabilities"]["drop"] == ["ALL"] or fail(f"{pod} is not confined")
    program, user, workdir = IMAGES[container["image"].split(":")[0]]
    f"{security['runAsUser']}:{security['runAsGroup']}" == user or fail(f"{pod} runs as another user than its image")
    env = {}
    for variable in container["env"]:
        if "valueFrom" in variable:
            path = variable["valueFrom"]["fieldRef"]["fieldPath"]
            env[variable["name"]] = {"metadata.name": pod, "metadata.namespace": namespace}[path]
        else:
            env[variable["name"]] = re.sub(r"\$\((\w+)\)", lambda match: env[match[1]], variable["value"])
    group, volumes, temporary = security["fsGroup"], {}, []
    for volume in within["volumes"]:
        name = volume["name"]
        own = world.folder("volumes", pod, name, mode=0o2777, group=group)
        if "persistentVolumeClaim" in volume:
            own = world.folder("claims", volume["persistentVolumeClaim"]["claimName"], mode=0o2775, group=group)
        elif "emptyDir" in volume:
            temporary.append(own)
        else:
            kind = "secret" if "secret" in volume else "configMap"
            said = volume[kind]
            for file in files[kind, said["secretName" if kind == "secret" else "name"]]:
                shutil.copyfile(file, own / file.name)
                os.chown(own / file.name, 0, group)
                (own / file.name).chmod(said.get("defaultMode", 0o644))
        volumes[name] = own
    for claim in spec.get("volumeClaimTemplates", []):
        name = claim["metadata"]["name"]
        volumes[name] = world.folder("claims", f"{name}-{pod}", mode=0o2775, group=group)
    return Container(
        name=pod,
        domain=domain,
        argv=program + container.get("args", []),
        env=env,
        uid=security["runAsUser"],
        gid=security["runAsGroup"],
        group=group,
        mounts=[
            (volumes[mount["name"]], mount["mountPath"], mount.get("readOnly", False))
            for mount in container["volumeMounts"]
        ],
        temporary=temporary,
        probes=list(probes(container)),
        before_stop=container.get("lifecycle", {}).get("preStop", {}).get("exec", {}).get("command", []),
        grace=within["terminationGracePeriodSeconds"],
        workdir=workdir,
    )
