#!lua flags=allow-oom
-- Drops the entries of a journal that are in SQL, and records up to which offset that is everything (`safe`).
-- KEYS[1] meta — hash: the board's state
-- KEYS[2] journal — stream: what SQL does not hold yet
-- Request: TrimRequest
-- Returns {'ok', dropped}
local request = cmsgpack.unpack(ARGV[1])
local meta, journal = unpack(KEYS)
local dropped = redis.call('XTRIM', journal, 'MINID', '=', request.least)
if redis.call('HGET', meta, 'epoch') == request.epoch then
  redis.call('HSET', meta, 'drained', string.format('%.0f', request.drained), 'safe', request.offset)
end
return {'ok', dropped}
