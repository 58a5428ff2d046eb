"""Makes a node talk more, less or other than it should when somebody logs in with ssh."""

from __future__ import annotations

from dataclasses import replace

from tests.testbed.image import NodeImage

TPUT = "tput: No value for $TERM and no -T specified"


def with_banner(image: NodeImage, text: str) -> NodeImage:
    """sshd says this before the login."""
    return replace(image, banner=text)


def with_login_shell(image: NodeImage, script: str) -> NodeImage:
    """The shell of those who log in is this script; sshd calls it with `-c COMMAND`."""
    return replace(image, login_shell=script)


def with_shell_noise(image: NodeImage) -> NodeImage:
    """The login shell says things of its own before and after the command, on both outputs."""
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
    """Every line that comes back ends in CR LF, and errors are among the output, as through a terminal."""
    return with_login_shell(image, "#!/bin/sh\n/bin/sh \"$@\" 2>&1 | sed 's/$/\\r/'\n")


def with_garbage(image: NodeImage) -> NodeImage:
    """Whatever is asked, what comes back is rubbish, of bytes that are no text."""
    return with_login_shell(image, "#!/bin/sh\ncat >/dev/null\nhead -c 5000 /dev/urandom\nexit 0\n")


def with_cut_answer(image: NodeImage, after_bytes: int) -> NodeImage:
    """The answer ends in its middle."""
    return with_login_shell(image, f'#!/bin/sh\n/bin/sh "$@" | head -c {after_bytes}\n')


def with_silence(image: NodeImage) -> NodeImage:
    """The login succeeds, and then nothing comes back, ever."""
    return with_login_shell(image, "#!/bin/sh\nexec sleep infinity\n")
