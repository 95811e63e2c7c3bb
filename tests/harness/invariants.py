"""Checks of the invariants by brute force, inside the store."""

from typing import Any, Final

from live.store.board.keys import Keys
from live.store.board.read.reader import HIGH

CHECK_I1: Final = """
local wrong, sums, units, ones = {}, {}, 0, 0
local shape = redis.call('HGET', KEYS[2], 'shape')
local skip = shape and cjson.decode(shape).tags ~= 'key' and 14 or 0
for i = 3, #KEYS do
  local fields = redis.call('HGETALL', KEYS[i])
  for f = 1, #fields, 2 do
    sums[fields[f]] = (sums[fields[f]] or 0) + tonumber(fields[f + 1])
  end
end
local ranking = redis.call('ZRANGE', KEYS[1], 0, -1, 'WITHSCORES')
for i = 1, #ranking, 2 do
  local member = string.sub(ranking[i], skip + 1)
  local score, sum = tonumber(ranking[i + 1]), sums[member] or 0
  units, ones = units + math.floor(score / 1000000000), ones + score % 1000000000
  if score ~= sum or score == 0 then wrong[#wrong + 1] = member end
  sums[member] = nil
end
for member, sum in pairs(sums) do if sum ~= 0 then wrong[#wrong + 1] = member end end
local kept = redis.call('HMGET', KEYS[2], 'total', 'high')
return {wrong, kept[1] or '0', kept[2] or '0', string.format('%.0f', units), string.format('%.0f', ones)}
"""


async def drifted(client: Any, keys: Keys) -> list[bytes]:
    """The members for which I1 does not hold, and `(total)` if the stored total is not the sum of all scores.

    A script adds up all slots at one instant, also slots that the board does not list. So the slots are looked up
    before and after the check. If the check finds something wrong and the slots have changed, the check is repeated.
    """
    while True:
        before = sorted([key.encode() async for key in client.names(keys.slot_pattern)])
        found = await client.eval(CHECK_I1, 2 + len(before), keys.ranking, keys.meta, *before)
        wrong: list[bytes] = found[0]
        low, high, units, ones = map(int, found[1:])
        if low + (high << HIGH) != units * 10**9 + ones:
            wrong.append(b"(total)")
        after = sorted([key.encode() async for key in client.names(keys.slot_pattern)])
        if not wrong or before == after:
            return wrong
