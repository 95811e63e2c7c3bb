#!lua flags=allow-oom
-- Records up to which offset everything is in SQL (`safe`), and drops those entries unless a backup needs them.
-- KEYS[1] meta — hash: the board's state
-- KEYS[2] journal — stream: what SQL does not hold yet
-- Request: TrimRequest
-- Returns {'ok', dropped}
local request = cmsgpack.unpack(ARGV[1])
local meta, journal = unpack(KEYS)
local dropped = 0
if request.least then dropped = redis.call('XTRIM', journal, 'MINID', '=', request.least) end
if redis.call('HGET', meta, 'epoch') == request.epoch then
  redis.call('HSET', meta, 'safe', request.offset)
  if request.drained then redis.call('HSET', meta, 'drained', string.format('%.0f', request.drained)) end
end
return {'ok', dropped}
