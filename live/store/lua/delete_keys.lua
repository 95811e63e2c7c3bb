#!lua flags=allow-oom
-- Deletes some store keys of a deleted board, and returns what is left to delete. It does not touch a new board under
-- the same id.
--
-- The first step renames the state. Without its state no script changes the board. After a crash, the next process
-- finds in the renamed state which buckets of identities the board may have.
-- KEYS meta, gone, slots
-- KEYS old... — the store keys to delete
-- Request: DeleteKeysRequest
-- Returns {'left', cursor} — these store keys have more elements: call it again with the same store keys and this cursor
--         {'ok', span, bucket, now, start...} — the length of buckets of identities and the start of the newest
--         bucket ('' for unknown), the store's time in seconds, and the starts of slots with store keys left
--         {'epoch', epoch} — there is another board
--@include discard

local held = redis.call('HGET', meta, 'epoch')
if held and held ~= request.epoch then return {'epoch', held} end
if redis.call('EXISTS', meta) == 1 then redis.call('RENAME', meta, gone) end
local left = discard_all({unpack(KEYS, 4)}, request.elements, request.cursor or '0')
if left then return {'left', left} end
for _, start in ipairs(request.starts or {}) do
  redis.call('ZREM', slots, start)
  redis.call('HDEL', gone, 'total:' .. start, 'high:' .. start)
end

local state = redis.call('HMGET', gone, 'span', 'bucket')
local reply = {'ok', state[1] or '', state[2] or '', redis.call('TIME')[1]}
for _, start in ipairs(redis.call('ZRANGE', slots, 0, request.count - 1)) do reply[#reply + 1] = start end
for _, field in ipairs(redis.call('HKEYS', gone)) do  -- a period may have totals, and no slot any more
  local start = string.match(field, '^total:(.+)$')
  if start then reply[#reply + 1] = start end
end
return reply
