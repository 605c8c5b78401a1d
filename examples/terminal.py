"""Runs a program on a terminal and types into it."""
import asyncio, json, os, urllib.request
from websockets.asyncio.client import connect

TOKEN, SERVER = os.environ["COVE_TOKEN"], "127.0.0.1:4100"
HEADERS = {"authorization": f"Bearer {TOKEN}", "content-type": "application/json"}

async def main():
    body = {"language": "python", "source": "name = input('who? ')\nprint('hello', name)",
            "terminal": {"rows": 24, "cols": 80}}
    request = urllib.request.Request(f"http://{SERVER}/v1/executions",
                                     json.dumps(body).encode(), HEADERS)
    execution = json.load(urllib.request.urlopen(request))["id"]
    url = f"ws://{SERVER}/v1/executions/{execution}/events"
    async with connect(url, additional_headers=HEADERS) as socket:
        async for message in socket:
            event = json.loads(message)
            if event["type"] == "stdout":
                print(repr(event["data"]))
                if "who?" in event["data"]:
                    await socket.send(json.dumps({"type": "stdin", "data": "Ada\n"}))
            else:
                print(event["seq"], event["type"], event.get("verdict", ""))

asyncio.run(main())
