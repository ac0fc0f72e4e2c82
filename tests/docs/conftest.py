"""Says at the end which blocks of the documents were run, and which were not, and why."""


def pytest_terminal_summary(terminalreporter):
    import test_docs
    if not test_docs.TRIED and not test_docs.LEFT_OUT:
        return
    terminalreporter.section("blocks of the documents")
    terminalreporter.write_line("%d were run, %d files in them were checked, %d are run by other tests, %d by none:" % (
        len(test_docs.TRIED), len(test_docs.CHECKED), len(test_docs.ELSEWHERE), len(test_docs.LEFT_OUT)))
    for block, reason in test_docs.LEFT_OUT:
        terminalreporter.write_line("  %s: %s" % (block, reason))
