#!lua flags=allow-oom
-- Keeps or drops the definition of a board, if all definitions are still what the caller has read; and notes who did it.
-- KEYS[1] definitions — hash: board, its definition as JSON; beside them ':version', which grows with every change
-- KEYS[2] trail — stream: who changed what
-- KEYS[3] store — string: the identity of the store
-- ARGV[1] version — string: the version that the caller has read; '' for none
-- ARGV[2] board — string: its id
-- ARGV[3] definition — JSON: what to keep; '' to drop it
-- ARGV[4] length — integer: about how many entries of the trail to keep
-- ARGV[5] who — string: a producer's id, or what stands for others
-- ARGV[6] what — string: what was done; '' for nothing that is to be noted
-- ARGV[7] choices — JSON: with which choices
-- ARGV[8] identity — string: the store that the caller knows; '' for any
-- Returns {'ok', version} or {'moved'}
--         {'lost', identity} — this is another store, or an empty one
local definitions, trail, store = KEYS[1], KEYS[2], KEYS[3]
local version, board, definition, length = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local who, what, choices, identity = ARGV[5], ARGV[6], ARGV[7], ARGV[8]

local held = redis.call('GET', store) or ''
if identity ~= '' and held ~= identity then return {'lost', held} end
if (redis.call('HGET', definitions, ':version') or '') ~= version then return {'moved'} end
-- Begins with the time, so that a store that has lost its boards does not come to a version that was there before.
version = string.format('%.0f', (version == '' and tonumber(redis.call('TIME')[1]) or tonumber(version)) + 1)
if what ~= '' then
  redis.call('XADD', trail, 'MAXLEN', '~', length, '*', 'who', who, 'what', what, 'board', board, 'choices', choices)
end
redis.call('HSET', definitions, ':version', version)
if definition == '' then
  redis.call('HDEL', definitions, board)
else
  redis.call('HSET', definitions, board, definition)
end
return {'ok', version}
