"""Writes the records of a Nakama leaderboard as CSV: NAKAMA_TOKEN=… python nakama.py http://127.0.0.1:7350 LEADERBOARD"""

import csv
import json
import os
import sys
from urllib.parse import quote, urlencode
from urllib.request import Request, urlopen

server, leaderboard = sys.argv[1:]
table = csv.writer(sys.stdout)
table.writerow(["member", "score", "title"])
cursor = ""
while True:
    address = f"{server}/v2/leaderboard/{quote(leaderboard, safe='')}?{urlencode({'limit': 100, 'cursor': cursor})}"
    with urlopen(Request(address, headers={"Authorization": f"Bearer {os.environ['NAKAMA_TOKEN']}"})) as response:
        page = json.load(response)
    for record in page.get("records", []):  # a score of zero is left out of the JSON
        table.writerow([record["owner_id"], record.get("score", "0"), record.get("username", "")])
    cursor = page.get("next_cursor", "")
    if not cursor:
        break
