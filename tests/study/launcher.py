"""A stand-in for torchrun: python -c LAUNCHER FILE writes its own number and that of its rank to the file."""

LAUNCHER = """
import os, signal, subprocess, sys, time

def end(*signal):
    time.sleep(0.3)
    rank.terminate()
    rank.wait()
    sys.exit()

signal.signal(signal.SIGTERM, end)
rank = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True)
with open(sys.argv[1] + ".part", "w") as file:
    file.write(f"{os.getpid()} {rank.pid}")
os.rename(sys.argv[1] + ".part", sys.argv[1])
while True:
    signal.pause()
"""
"""As torchrun does: ranks with sessions of their own, which it ends when it is asked to end."""
