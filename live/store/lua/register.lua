#!lua flags=allow-oom
-- Keeps a producer's record, if what stands there is still what the caller has read.
-- KEYS[1] producers — hash: producer, its record as JSON; beside them ':version', which grows with every change
-- ARGV[1] producer — string: its id
-- ARGV[2] known — JSON: the record that the caller has read; '' for none
-- ARGV[3] record — JSON: the record to keep
-- Returns {'ok', version} or {'moved'}
local producers = KEYS[1]
local producer, known, record = ARGV[1], ARGV[2], ARGV[3]

if (redis.call('HGET', producers, producer) or '') ~= known then return {'moved'} end
-- Begins with the time, so that a store that has lost its producers does not come to a version that was there before.
local version = tonumber(redis.call('HGET', producers, ':version') or redis.call('TIME')[1]) + 1
version = string.format('%.0f', version)
redis.call('HSET', producers, producer, record, ':version', version)
return {'ok', version}
