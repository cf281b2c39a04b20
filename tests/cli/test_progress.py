from tallybox.cli import progress


def test_without_a_terminal_a_line_comes_every_minute(capsys, monkeypatch):
    now = [1000.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    with progress.progress_bar("training") as show:
        for done in range(100, 700):  # a step a second; 100 were done before
            now[0] += 1
            show(done, 1000)
    written = capsys.readouterr()
    assert written.out == ""
    lines = written.err.splitlines()
    assert len(lines) == 10
    assert lines[0] == "training: 159 of 1000 (16 %), 14 min left"
    assert lines[-1] == "training: 699 of 1000 (70 %), 5 min left"
