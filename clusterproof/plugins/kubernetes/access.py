"""Access to a cluster: a context of the user's kubeconfig, the service account of this pod, or EKS's API.

The official client reads kubeconfigs, runs exec plugins and supports proxies; it is an extra, imported only here. In a
pod it is not needed, which halves the image.
"""

from __future__ import annotations

import logging
import os
import re
import ssl
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from clusterproof.plugins.aws import Account
from clusterproof.plugins.core.message import listed
from clusterproof.plugins.core.strict import nearest
from clusterproof.plugins.kubernetes.api import Api, KubernetesError

SETTING = "kubernetes"  # of a cluster: `context:NAME` (empty: the current one), `in-cluster`, `eks:NAME`
# Without the second package, pip selects one that conflicts with botocore's python-dateutil, or searches for hours.
MISSING = "Kubernetes needs its client, which is not installed: pip install kubernetes 'python-dateutil<3'"
EKS_NAME = re.compile(r"[0-9A-Za-z][\w-]{0,99}", re.ASCII)
CONNECTIONS = 128  # maximum kept open: one for each node that is visited, by default 64
ACCOUNT, TOKEN = Path("/var/run/secrets/kubernetes.io/serviceaccount"), "token"  # mounted by the kubelet in each pod
TOKEN_S = 600.0  # EKS accepts a token for 15 minutes
ASKED_S = 5.0  # between checks for changed credentials: the client reads a file and the environment each time


def open_api(settings: Mapping[str, str]) -> Api:
    """The API of the cluster in these settings. Raises KubernetesError, AwsError."""
    access, _, name = settings.get(SETTING, "context:").partition(":")
    if access == "in-cluster":
        return _in_cluster()
    if access == "eks":
        return _opened(_eks(name, Account(settings.get("region", ""), settings.get("profile", ""))))
    return _opened(_context(name))


def contexts() -> tuple[list[str], str]:
    """The contexts of the user's kubeconfig, and the current one. Raises KubernetesError."""
    config = _client("config")
    try:
        entries, current = config.list_kube_config_contexts(_kubeconfig())
    except Exception as problem:  # ConfigException, and errors from YAML and the file system
        raise KubernetesError(f"the kubeconfig: {_line(problem)}; expected one (KUBECONFIG, ~/.kube/config)") from None
    return [str(context["name"]) for context in entries], str((current or {}).get("name", ""))


def _kubeconfig() -> str:
    """Its location, as kubectl determines it; the client itself only does so on import."""
    return os.environ.get("KUBECONFIG") or "~/.kube/config"


def _context(name: str) -> Any:
    known, _ = contexts()
    if name and name not in known:
        there = f"expected one of {listed(known)}" if known else "the kubeconfig has none"
        raise KubernetesError(f"no context is called {name!r:.120}{nearest(name, known)}; {there}")
    configuration = _client("client").Configuration()
    try:
        with _logged() as errors:
            _client("config").load_kube_config(
                _kubeconfig(), name or None, client_configuration=configuration, persist_config=False
            )
    except Exception as problem:  # as above
        raise _no_context(name, _line(problem)) from None
    if errors and not (configuration.api_key or configuration.cert_file):
        raise _no_context(name, errors[0])
    return configuration


def _no_context(name: str, why: str) -> KubernetesError:
    expected = "expected one that works (kubectl --context … get nodes)"
    return KubernetesError(f"context {name or 'of the kubeconfig'}: {why}; {expected}")


@contextmanager
def _logged() -> Iterator[list[str]]:
    """Errors that the client logs inside the block: if an exec plugin fails, it continues without credentials."""
    errors: list[str] = []
    handler = logging.Handler(logging.ERROR)
    handler.emit = lambda record: errors.append(_line(record.getMessage()))  # type: ignore[method-assign]
    logging.getLogger().addHandler(handler)
    try:
        yield errors
    finally:
        logging.getLogger().removeHandler(handler)


def _in_cluster() -> Api:
    """Access with this pod's service account. Raises KubernetesError."""
    from urllib3 import PoolManager

    try:
        host, port = (os.environ[f"KUBERNETES_SERVICE_{word}"] for word in ("HOST", "PORT"))
        (ACCOUNT / TOKEN).read_text()
        trusted = ssl.create_default_context(cafile=str(ACCOUNT / "ca.crt"))
        trusted.verify_flags &= ~ssl.VERIFY_X509_STRICT  # as below
    except (KeyError, OSError) as problem:  # also ssl's
        raise KubernetesError(
            f"no account of a pod here: {_line(problem)}; expected to run in a pod of the cluster, else k8s:CONTEXT"
        ) from None
    pool = PoolManager(maxsize=CONNECTIONS, ssl_context=trusted)
    address = f"[{host}]" if ":" in host else host
    return Api(f"https://{address}:{port}", pool.request, kept_for(ASKED_S, _token))


def _token() -> str:
    """The header with the pod's token; the kubelet renews it before it expires. Raises KubernetesError."""
    try:
        return f"Bearer {(ACCOUNT / TOKEN).read_text().strip()}"
    except (OSError, ValueError) as problem:  # or the file is no text
        raise _lost(problem) from None


def _lost(problem: object) -> KubernetesError:
    return KubernetesError(f"the credentials: {_line(problem)}; expected some that work")


def _eks(name: str, account: Account) -> Any:
    """Access as by `aws eks update-kubeconfig` and `aws eks get-token`, without either. Raises AwsError."""
    account.require_credentials()
    resource = account.call("eks", "describe_cluster", name=name)["cluster"]
    if not resource.get("endpoint"):
        raise KubernetesError(
            f"EKS cluster {name} is {resource.get('status', 'of no status')}; expected one with an endpoint"
        )
    cluster = {
        "server": str(resource["endpoint"]),
        "certificate-authority-data": str(resource["certificateAuthority"]["data"]),
    }
    configuration = _client("client").Configuration()
    _client("config").load_kube_config_from_dict(
        {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": name, "cluster": cluster}],
            "users": [{"name": name, "user": {}}],
            "contexts": [{"name": name, "context": {"cluster": name, "user": name}}],
            "current-context": name,
        },
        client_configuration=configuration,
    )
    configuration.refresh_api_key_hook = _renewed(lambda: account.eks_token(name))
    configuration.refresh_api_key_hook(configuration)
    return configuration


def _renewed(token: Callable[[], str]) -> Callable[[Any], None]:
    """A hook that sets a token in a configuration, and renews it when it is old."""
    known = kept_for(TOKEN_S, token)

    def renew(configuration: Any) -> None:
        configuration.api_key["BearerToken"] = f"Bearer {known()}"

    return renew


def _opened(configuration: Any) -> Api:
    configuration.retries = False  # Api's own timeout decides
    configuration.connection_pool_maxsize = CONNECTIONS
    pool = _client("client").ApiClient(configuration).rest_client.pool_manager
    pools = pool.pool_classes_by_scheme
    pool.pool_classes_by_scheme = {**pools, "https": _as_lenient_as_kubectl(pools["https"])}

    def authorization() -> str:
        try:
            bearer_token = configuration.auth_settings().get("BearerToken")
        except Exception as problem:  # an exec plugin that no longer works
            raise _lost(problem) from None
        basic = configuration.get_basic_auth_token() if configuration.username else ""
        return str(bearer_token["value"]) if bearer_token else str(basic)

    return Api(str(configuration.host), pool.request, kept_for(ASKED_S, authorization))


def _as_lenient_as_kubectl(pools: type[Any]) -> type[Any]:
    """Python 3.13 rejects certificates without key identifiers, such as those of older EKS clusters."""
    from urllib3.util.ssl_ import create_urllib3_context, resolve_cert_reqs

    class Connection(pools.ConnectionCls):  # type: ignore[misc, name-defined]
        def connect(self) -> None:
            self.ssl_context = create_urllib3_context(cert_reqs=resolve_cert_reqs(self.cert_reqs))
            self.ssl_context.verify_flags &= ~ssl.VERIFY_X509_STRICT
            if not (self.ca_certs or self.ca_cert_data):
                self.ssl_context.load_default_certs()
            super().connect()

    class Pool(pools):  # type: ignore[misc]
        ConnectionCls = Connection

    return Pool


def kept_for(seconds: float, ask: Callable[[], str]) -> Callable[[], str]:
    """A function that caches an answer for so long; not thread-safe."""
    known, until = "", 0.0

    def answer() -> str:
        nonlocal known, until
        if time.monotonic() >= until:
            known, until = ask(), time.monotonic() + seconds
        return known

    return answer


def _client(module: str) -> Any:
    """`kubernetes.client` or `kubernetes.config`. Raises KubernetesError if the extra is not installed."""
    try:
        import kubernetes
        import kubernetes.client
        import kubernetes.config
    except ImportError:
        raise KubernetesError(MISSING) from None
    return getattr(kubernetes, module)


def _line(problem: object) -> str:
    return " ".join(f"{problem}".split())[:300].rstrip(".") or type(problem).__name__
