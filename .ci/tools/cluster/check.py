"""Validates the files of examples/cluster: see .ci/cluster."""

import copy
import json
import os
import re
import shutil
import tempfile
from pathlib import Path

import yaml
from common import ROOT, SEARCH, documents, examples, fail, run

#: The oldest and the newest version of Kubernetes whose schemas the package has.
KUBERNETES = ["1.25.0", "1.37.0"]


def check_compose(folder):
    from compose_spec import PyCompose

    text = (folder / "compose.yaml").read_text()
    read = yaml.safe_load(text)
    PyCompose.from_json(json.dumps(read))
    # A mistake is found.
    wrong = copy.deepcopy(read)
    wrong["services"]["postgres"]["restrat"] = "always"
    try:
        PyCompose.from_json(json.dumps(wrong))
    except ValueError:
        pass
    else:
        fail("the schema of compose files finds no mistakes")
    for name, service in read["services"].items():
        check_image(f"compose.yaml: {name}", service["image"])
        for volume in service["volumes"]:
            source = volume.split(":")[0]
            there = (folder / source).exists() if source.startswith(".") else source in read["volumes"]
            there or fail(f"compose.yaml: {name}: there is no {source}")
    return "the compose file"


def check_manifests(folder):
    import kubernetes_validate as schemas

    def valid(object, version):
        schemas.validate(object, version, strict=True)

    kustomization = yaml.safe_load((folder / "kustomization.yaml").read_text())
    files = [document for file in kustomization["resources"] for document in documents(folder / file)]
    built, what = [files], "the manifests"
    for file in (folder / "kubernetes").iterdir():
        f"kubernetes/{file.name}" in kustomization["resources"] or fail(f"kustomization.yaml: {file.name} is missing")
    if shutil.which("kubectl"):
        for name in ["cluster", "cluster-one-node"]:
            built.append(list(yaml.safe_load_all(run("kubectl", "kustomize", folder.parent / name))))
        what += ", built with kubectl kustomize,"
    else:
        print("kustomize: NOT CHECKED: kubectl is not installed")
    for objects in built:
        check_references(objects)
        for object in objects:
            for version in KUBERNETES:
                valid(object, version)
            pod = object.get("spec", {}).get("template", {}).get("spec", {})
            for container in pod.get("containers", []):
                check_image(object["metadata"]["name"], container["image"])
    # A mistake is found.
    wrong = copy.deepcopy(next(object for object in files if object["kind"] == "StatefulSet"))
    wrong["spec"]["template"]["spec"]["containers"][0]["readinesProbe"] = {}
    try:
        valid(wrong, KUBERNETES[-1])
    except schemas.ValidationError:
        pass
    else:
        fail("the schemas of Kubernetes find no mistakes")
    return what


def check_references(objects):
    """Services and disruption budgets select pods, on ports that those have; a host that drains has a name."""
    pods = {one["metadata"]["name"]: one["spec"] for one in objects if one["kind"] in ("StatefulSet", "Deployment")}
    services = {one["metadata"]["name"]: one["spec"] for one in objects if one["kind"] == "Service"}
    for one in objects:
        if one["kind"] not in ("Service", "PodDisruptionBudget"):
            continue
        name, selector = one["metadata"]["name"], one["spec"]["selector"]
        labels = selector.get("matchLabels", selector)
        selected = [pod["template"] for pod in pods.values() if pod["template"]["metadata"]["labels"] == labels]
        len(selected) == 1 or fail(f"{one['kind']} {name} selects {len(selected)} kinds of pods")
        ports = [port for container in selected[0]["spec"]["containers"] for port in container["ports"]]
        known = {port["name"] for port in ports} | {port["containerPort"] for port in ports}
        for port in one["spec"].get("ports", []):
            port.get("targetPort", port["port"]) in known or fail(f"service {name}: no pod has the port {port}")
    for name, pod in pods.items():
        pod["selector"]["matchLabels"] == pod["template"]["metadata"]["labels"] or fail(f"{name} selects other pods")
        if "serviceName" in pod:
            services[pod["serviceName"]].get("clusterIP") == "None" or fail(f"{name}: its service is not headless")
        mounted = [mount["name"] for container in pod["template"]["spec"]["containers"] for mount in container["volumeMounts"]]
        claims = [claim["metadata"]["name"] for claim in pod.get("volumeClaimTemplates", [])]
        there = [volume["name"] for volume in pod["template"]["spec"]["volumes"]] + claims
        sorted(mounted) == sorted(there) or fail(f"{name} mounts {mounted} of {there}")
    services["ostler-hosts"].get("publishNotReadyAddresses") or fail("a host that drains cannot be reached by the others")


def check_image(where, image):
    """Images have a fixed version, that of ostler is this one, and none names a registry."""
    match = re.fullmatch(r"(ostler|postgres|haproxy):(\d+\.\d+(\.\d+)?)", image)
    match or fail(f"{where}: the image {image} has no fixed version")
    version = re.search(r'^version = "(.+)"', (ROOT / "Cargo.toml").read_text(), re.M)[1]
    if match[1] == "ostler" and match[2] != version:
        fail(f"{where}: the image is {image}, but the version is {version}")


def check_haproxy(folder, work):
    if not shutil.which("haproxy", path=SEARCH):
        return "not that of HAProxy, which is not installed"
    # The certificate is where the container has it.
    text = (folder / "haproxy.cfg").read_text().replace("/run/secrets/", f"{folder}/secrets/")
    (work / "haproxy.cfg").write_text(text)
    hosts = {f"HOST_{at}": f"127.0.0.1:{9000 + at}" for at in (1, 2, 3)}
    run("haproxy", "-c", "-f", work / "haproxy.cfg", env={**os.environ, **hosts, "PATH": SEARCH})
    return "the configuration of HAProxy"


def check():
    with tempfile.TemporaryDirectory(prefix="ostler-cluster-") as work:
        work = Path(work)
        folder = examples(work)
        print("cluster: valid:", "; ".join([check_compose(folder), check_manifests(folder), check_haproxy(folder, work)]))


check()
