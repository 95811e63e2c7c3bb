#!lua flags=allow-oom
-- Keeps a producer's record, if what stands there is still what the caller has read.
-- KEYS[1] producers — hash: producer, its record as JSON; beside them ':version', which grows with every change
-- Request: RegisterRequest
-- Returns {'ok', version} or {'moved'}
local request = cmsgpack.unpack(ARGV[1])
local producers, producer = KEYS[1], request.producer

if (redis.call('HGET', producers, producer) or '') ~= request.known then return {'moved'} end
-- Begins with the time, so that a store that has lost its producers does not come to a version that was there before.
local version = tonumber(redis.call('HGET', producers, ':version') or redis.call('TIME')[1]) + 1
version = string.format('%.0f', version)
redis.call('HSET', producers, producer, request.record, ':version', version)
return {'ok', version}
