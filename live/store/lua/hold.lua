#!lua
-- Takes a lease that one process at a time may hold, or renews it.
-- KEYS[1] holder — string: the process that holds the lease; expires unless that process renews it
-- Request: HoldRequest
-- Returns {'held'} — the caller holds the lease
--         {'taken'} — another process has it
local request = cmsgpack.unpack(ARGV[1])
local holder, process = KEYS[1], request.process

local held = redis.call('GET', holder)
if held and held ~= process then return {'taken'} end
redis.call('SET', holder, process, 'PX', request.ttl)
return {'held'}
