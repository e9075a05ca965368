"""What the checks of examples/cluster share."""

import os
import shutil
import subprocess
from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parents[3]
LIMIT = 90
SEARCH = f"{os.environ.get('PATH', '')}:/usr/sbin"


def fail(why):
    raise SystemExit(f"cluster: {why}")


def run(*command, **options):
    done = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=LIMIT, **options)
    if done.returncode:
        fail(f"{' '.join(map(str, command))}: {done.stdout}{done.stderr}")
    return done.stdout


def examples(work):
    """A copy of the files, with secrets."""
    for name in ["cluster", "cluster-one-node"]:
        shutil.copytree(ROOT / "examples" / name, work / name, ignore=shutil.ignore_patterns("secrets"))
    run("sh", "secrets.sh", "secrets", "localhost", cwd=work / "cluster")
    return work / "cluster"


def documents(file):
    return list(yaml.safe_load_all(Path(file).read_text()))
