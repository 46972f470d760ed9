"""A newcomer's crawler: hundreds of async steps wait for a network beside each other in one worker.

    python 14_async_steps.py

Each page is a saga with async steps: it is fetched, its links are counted, and the count is told. The site is a server
of this program that answers slowly. One page never answers: its step is cancelled at its time limit, its undo runs, and
the pages beside it go on.
"""

import asyncio
import sys

from actorproc import AsyncContext, Limits, ProcedureFailed, ProcedureManager, Saga, step

PAGES = 200


class Page(Saga[int], limits=Limits(wall_time=60)):
    port: int
    path: str
    links: int = 0

    @step
    async def fetch(self, ctx: AsyncContext) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        try:
            writer.write(f"{self.path}\n".encode())
            text = await reader.readline()
        finally:
            writer.close()
        self.links = text.count(b"href")

    @fetch.undo
    async def forget(self, ctx: AsyncContext) -> None:
        ctx.log.warning("%s is given up", self.path)

    @step
    async def tell(self, ctx: AsyncContext) -> int:
        await ctx.expose("links", self.links)
        return self.links


async def serve(reader, writer):
    path = (await reader.readline()).decode().strip()
    if path == "/broken":
        await reader.read()  # until the client goes
    await asyncio.sleep(0.2)
    writer.write(b"href " * (len(path) - 5) + b"\n")
    writer.close()


async def main(directory):
    site = await asyncio.start_server(serve, "127.0.0.1", 0, backlog=PAGES + 1)
    port = site.sockets[0].getsockname()[1]
    async with ProcedureManager(directory, workers=1) as manager:
        broken = await manager.submit_async(Page(port, "/broken"), limits=Limits(wall_time=1))
        handles = [await manager.submit_async(Page(port, f"/page{number % 10}")) for number in range(PAGES)]
        counts = await asyncio.gather(*handles)
        print(len(counts), "pages,", sum(counts), "links")
        try:
            await broken
        except ProcedureFailed as error:
            print("the broken one:", error.cause)
    site.close()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "crawler-state"))
