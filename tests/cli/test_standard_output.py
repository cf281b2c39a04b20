from __future__ import annotations

import subprocess
import sys
import threading

from tallybox.cli.standard_output import reserved_standard_output


def test_what_other_threads_print_and_what_comes_after_the_command_goes_to_standard_error(capsys, monkeypatch):
    monkeypatch.setattr(sys, "stdout", sys.stdout)  # restored after the test
    with reserved_standard_output():
        print("ours")
        other = threading.Thread(target=lambda: print("a machine was lost"))
        other.start()
        other.join()
        assert sys.stdout.encoding
    print("the cluster was left")
    written = capsys.readouterr()
    assert written.out == "ours\n"
    assert written.err == "a machine was lost\nthe cluster was left\n"


def test_a_pipe_whose_reader_is_gone_ends_the_command_quietly():
    command = [sys.executable, "-m", "tallybox", "--help"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        process.stdout.close()
        assert process.stderr.read() == ""
