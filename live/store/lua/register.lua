#!lua flags=allow-oom
-- Stores the record of a producer, if it has not changed since the caller read it.
-- KEYS producers
-- Request: RegisterRequest
-- Returns {'ok', version}
--         {'moved'} — the record has changed
local producer = request.producer

if (redis.call('HGET', producers, producer) or '') ~= request.known then return {'moved'} end
-- The first version is the time, so that a store that has lost its producers does not reach an earlier version again.
local version = tonumber(redis.call('HGET', producers, ':version') or redis.call('TIME')[1]) + 1
version = string.format('%.0f', version)
redis.call('HSET', producers, producer, request.record, ':version', version)
return {'ok', version}
