"""The plugin under test is the one these tests run with, installed or not."""

pytest_plugins = ["harness.pytest_plugin"]
