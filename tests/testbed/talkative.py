"""Makes a node print more, less or other output than it should on an ssh login."""

from __future__ import annotations

from dataclasses import replace

from tests.testbed.image import NodeImage

TPUT = "tput: No value for $TERM and no -T specified"


def with_banner(image: NodeImage, text: str) -> NodeImage:
    """sshd prints this before the login."""
    return replace(image, banner=text)


def with_login_shell(image: NodeImage, script: str) -> NodeImage:
    """Use this script as login shell; sshd calls it with `-c COMMAND`."""
    return replace(image, login_shell=script)


def with_shell_noise(image: NodeImage) -> NodeImage:
    """The login shell prints text before and after the command, on both outputs."""
    return with_login_shell(
        image,
        f"""#!/bin/sh
echo 'Welcome. Jobs are to be sent with sbatch.'
for try in 1 2 3; do echo '{TPUT}' >&2; done
/bin/sh "$@"
status=$?
echo 'logout'
exit $status
""",
    )


def with_crlf(image: NodeImage) -> NodeImage:
    """Every line of output ends in CR LF, and errors are mixed in, as on a terminal."""
    return with_login_shell(image, "#!/bin/sh\n/bin/sh \"$@\" 2>&1 | sed 's/$/\\r/'\n")


def with_garbage(image: NodeImage) -> NodeImage:
    """Any command's output is garbage, of bytes that are not text."""
    return with_login_shell(image, "#!/bin/sh\ncat >/dev/null\nhead -c 5000 /dev/urandom\nexit 0\n")


def with_cut_answer(image: NodeImage, after_bytes: int) -> NodeImage:
    """The output ends in the middle."""
    return with_login_shell(image, f'#!/bin/sh\n/bin/sh "$@" | head -c {after_bytes}\n')


def with_silence(image: NodeImage) -> NodeImage:
    """The login succeeds, but there is never any output."""
    return with_login_shell(image, "#!/bin/sh\nexec sleep infinity\n")
