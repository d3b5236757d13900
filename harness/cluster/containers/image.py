"""The image that hosts start from."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

from barrier_tck.harness.cluster.containers.engine import problems
from barrier_tck.harness.cluster.containers.labelled import IMAGE_LABEL
from barrier_tck.harness.support.errors import EnvironmentProblem

_REPOSITORY = "barrier-tck-host"
_DOCKERFILE = Path(__file__).parent / "Dockerfile"


def host_image(client: Any, base: str) -> str:
    """Build the image on a base, and return its id; the engine keeps what it has built before.

    ``base`` empty means no base at all.

    Raises:
        EnvironmentProblem: it cannot be built, for instance because the base is neither here nor in a registry.
    """
    advice = (
        f"The image of the hosts cannot be built on {base!r}. Leave the base out to use this machine's own system, or "
        "make one that needs no registry: debootstrap --include=python3,openjdk-17-jre-headless stable DIRECTORY; "
        "tar -C DIRECTORY -c . | docker import - NAME"
        if base
        else "The image of the hosts cannot be built."
    )
    tag = hashlib.sha256(base.encode()).hexdigest()[:12] if base else "empty"
    arguments = {"BASE": base} if base else {}
    with problems(EnvironmentProblem, advice), open(_DOCKERFILE, "rb") as recipe:
        image, _ = client.images.build(
            fileobj=recipe,
            buildargs=arguments,
            tag=f"{_REPOSITORY}:{tag}",
            rm=True,
            forcerm=True,
            labels={IMAGE_LABEL: base},
        )
    return str(image.id)
