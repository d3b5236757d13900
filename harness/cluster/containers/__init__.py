"""A cluster whose hosts are containers: killed, paused, unplugged and started again as machines are.

`docker_cluster` is the cluster and `container_host` one of its hosts. `engine` speaks with the container engine.
`image` makes the image that a host starts from, `host_files` says what of this machine a host sees, and `labelled`
removes what a harness that was killed could not remove itself.
"""
