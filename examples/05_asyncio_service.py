"""An asyncio server whose heavy requests are procedures: the event loop stays free for everybody else.

    python 05_asyncio_service.py

Clients send a line with a number and get the count of primes below it, or "ping" and get "pong". The program plays both
sides: while a worker counts, pings are answered.
"""

import asyncio
import sys

from actorproc import ProcedureManager, procedure


@procedure
def count_primes(limit: int) -> int:
    sieve = bytearray([1]) * limit
    sieve[:2] = b"\0\0"
    for number in range(2, limit):
        if sieve[number]:
            for multiple in range(number * number, limit, number):
                sieve[multiple] = 0
    return sum(sieve)


async def serve_client(manager, reader, writer):
    async for line in reader:
        word = line.decode().strip()
        if word == "ping":
            answer = "pong"
        else:
            # Submitting waits for the disk, so it happens in a thread; waiting for the result costs nothing.
            handle = await asyncio.to_thread(manager.submit, count_primes(int(word)))
            answer = await handle
        writer.write(f"{answer}\n".encode())
    writer.close()


async def ask(address, line):
    reader, writer = await asyncio.open_connection(*address)
    writer.write(f"{line}\n".encode())
    answer = (await reader.readline()).decode().strip()
    writer.close()
    return answer


async def main(directory):
    async with ProcedureManager(directory, workers=2) as manager:
        server = await asyncio.start_server(lambda *ends: serve_client(manager, *ends), "127.0.0.1", 0)
        async with server:
            address = server.sockets[0].getsockname()
            heavy = [asyncio.create_task(ask(address, limit)) for limit in (1_000_000, 500_000)]
            pings = 0
            while not all(task.done() for task in heavy):
                assert await ask(address, "ping") == "pong"
                pings += 1
            print("primes:", *[task.result() for task in heavy])
            print("pings answered meanwhile:", pings > 0)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "state"))
