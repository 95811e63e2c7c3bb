#!lua flags=allow-oom
-- Records up to which offset everything is in SQL (`safe`), and drops the entries up to it.
--
-- If the offset of the board is lower than that of SQL, the store has lost data. Then its entries may differ from those
-- in SQL, so the script drops no entry.
-- KEYS meta, journal
-- Request: TrimRequest
-- Returns {'ok', dropped}
--         {'behind', offset} — the board is at this offset only
local epoch, offset = unpack(redis.call('HMGET', meta, 'epoch', 'offset'))
local here = epoch == request.epoch
if here and tonumber(offset) < request.offset then return {'behind', offset} end
local dropped = redis.call('XTRIM', journal, 'MINID', '=', request.least)
if here then redis.call('HSET', meta, 'safe', request.offset, 'drained', string.format('%.0f', request.drained)) end
return {'ok', dropped}
