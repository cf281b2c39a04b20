from __future__ import annotations

import sys
import threading

from tallybox.cli.standard_output import reserved_standard_output


def test_what_other_threads_print_goes_to_standard_error(capsys):
    with reserved_standard_output():
        print("ours")
        other = threading.Thread(target=lambda: print("a machine was lost"))
        other.start()
        other.join()
        assert sys.stdout.encoding
    print("after")
    written = capsys.readouterr()
    assert written.out == "ours\nafter\n"
    assert written.err == "a machine was lost\n"
