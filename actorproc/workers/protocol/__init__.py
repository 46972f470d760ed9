"""The protocol between host and worker: frames, attachments, exit codes."""
