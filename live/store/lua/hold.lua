-- Takes a place that one process at a time may hold, or keeps it.
-- KEYS[1] holder — string: the process that holds it; expires when that one does not keep it
-- ARGV[1] process — string: the one that asks
-- ARGV[2] ttl — milliseconds: for how long it holds the place
-- Returns {'held'} — by the one that asks
--         {'taken'} — by another
local holder = KEYS[1]
local process, ttl = ARGV[1], ARGV[2]

local held = redis.call('GET', holder)
if held and held ~= process then return {'taken'} end
redis.call('SET', holder, process, 'PX', ttl)
return {'held'}
