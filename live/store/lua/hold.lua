#!lua
-- Takes a place that one process at a time may hold, or keeps it.
-- KEYS[1] holder — string: the process that holds it; expires when that one does not keep it
-- Request: HoldRequest
-- Returns {'held'} — by the one that asks
--         {'taken'} — by another
local request = cmsgpack.unpack(ARGV[1])
local holder, process = KEYS[1], request.process

local held = redis.call('GET', holder)
if held and held ~= process then return {'taken'} end
redis.call('SET', holder, process, 'PX', request.ttl)
return {'held'}
