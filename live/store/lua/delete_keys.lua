#!lua flags=allow-oom
-- Drops some keys of a board that is no more, and tells what is left to drop; another board under its id is left alone.
--
-- The state goes first, in one step, to a name of its own: without it no script works on the board, and whoever goes on
-- after a crash still finds there which buckets of identities the board may have.
-- KEYS[1] meta — hash: the board's state
-- KEYS[2] gone — hash: the state of a board that is no more
-- KEYS[3] slots — sorted set: start of every slot there is, scored by itself
-- KEYS[4...] old — keys to drop
-- Request: DeleteKeysRequest
-- Returns {'ok', span, bucket, now, start...} — length and newest of the buckets of identities ('' for unknown), the
--         store's time in seconds, and starts of slots that have keys left
--         {'epoch', epoch} — there is another board
local request = cmsgpack.unpack(ARGV[1])
local meta, gone, slots = unpack(KEYS, 1, 3)

local held = redis.call('HGET', meta, 'epoch')
if held and held ~= request.epoch then return {'epoch', held} end
if redis.call('EXISTS', meta) == 1 then redis.call('RENAME', meta, gone) end
for i = 4, #KEYS do redis.call('UNLINK', KEYS[i]) end
for _, start in ipairs(request.starts or {}) do
  redis.call('ZREM', slots, start)
  redis.call('HDEL', gone, 'total:' .. start, 'volume:' .. start)
end

local state = redis.call('HMGET', gone, 'span', 'bucket')
local reply = {'ok', state[1] or '', state[2] or '', redis.call('TIME')[1]}
for _, start in ipairs(redis.call('ZRANGE', slots, 0, request.count - 1)) do reply[#reply + 1] = start end
for _, field in ipairs(redis.call('HKEYS', gone)) do  -- a table may have sums, and no slot any more
  local start = string.match(field, '^total:(.+)$')
  if start then reply[#reply + 1] = start end
end
return reply
