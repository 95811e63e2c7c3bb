#!lua flags=allow-oom
-- Takes a record out of every ranking of its board, or puts it back with what its slots hold by now.
--
-- A hidden record goes on being counted; it has no rank and no part in the sum, and keeps its place among ties. Where a
-- ranking has filled up meanwhile, the last record leaves when a hidden one comes back.
-- KEYS[1] meta — hash: the board's state
-- KEYS[2] slots — sorted set: start of every slot there is, scored by itself
-- KEYS[3] hidden — hash: the members that are hidden
-- KEYS[4...] parts — for each slot there is, in order: slot, and of its table ranking, reached, levels, metadata
-- ARGV[1] epoch — string: the epoch that the caller knows
-- ARGV[2] member — string: the key
-- ARGV[3] hide — "1" to hide it, "0" to show it
-- ARGV[4] channel — string: where the change is announced
-- ARGV[5] ties — "key", or "rising" or "falling" where names have tags
-- ARGV[6] ranks — "dense" to keep the levels
-- ARGV[7] operator — "incr", or one by which a score of zero is a record
-- ARGV[8] summed — "1" to keep the sum of all scores
-- ARGV[9] cap — integer: most members of a ranking; 0 for any number
-- ARGV[10] order — "forward", "backward" or "turned": how the ranking is read, so which members are its last
-- ARGV[11...] starts — for each slot its start (seconds), and what the names of its table's sums end with
-- Returns {'ok', offset}
--         {'slots'} — slots have come or gone: ask again with the keys that there are
--         {'epoch', epoch} — the board lives another life; '' for none
--@include clock
local meta, slots, hidden = KEYS[1], KEYS[2], KEYS[3]
local epoch, member, hide, channel, ties, ranks = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5], ARGV[6]
local operator, summed, cap, order = ARGV[7], ARGV[8], tonumber(ARGV[9]), ARGV[10]
local part = 4  -- the first key, and the first argument, of the slots
local word = 11

local state = redis.call('HMGET', meta, 'epoch', 'offset')
if state[1] ~= epoch then return {'epoch', state[1] or ''} end
local there = redis.call('ZRANGE', slots, 0, -1)
if #there ~= (#KEYS - 3) / 5 then return {'slots'} end
for i = 1, #there do
  if there[i] ~= ARGV[word + 2 * i - 2] then return {'slots'} end
end
if (redis.call('HEXISTS', hidden, member) == 1) == (hide == '1') then return {'ok', state[2]} end

-- Announced first, for it could be forbidden; subscribers hear of it when the script has ended.
local offset = digits(tonumber(state[2]) + 1)
redis.call('PUBLISH', channel, epoch .. ':' .. offset)
redis.call('HSET', meta, 'offset', offset)
if hide == '1' then redis.call('HSET', hidden, member, 1) else redis.call('HDEL', hidden, member) end
--@include total
--@include cut

local tables, held = {}, {}
for i = 1, #there do
  local at, suffix = part + 5 * (i - 1), ARGV[word + 2 * i - 1]
  local value = redis.call('HGET', KEYS[part + 5 * (i - 1)], member)
  if not held[suffix] then tables[#tables + 1], held[suffix] = {at, suffix}, {} end
  if value then held[suffix][1] = (held[suffix][1] or 0) + tonumber(value) end
end
for _, found in ipairs(tables) do
  local at, suffix = unpack(found)
  local slot, ranking, reached, levels, metadata = unpack(KEYS, at, at + 4)
  local tag = ties == 'key' and '' or redis.call('HGET', reached, member)
  local score = held[suffix][1]
  if score == 0 and operator == 'incr' then score = nil end
  if hide == '1' then
    local old = redis.call('ZSCORE', ranking, (tag or '') .. member)
    if old then
      redis.call('ZREM', ranking, tag .. member)
      if ranks == 'dense' and redis.call('ZCOUNT', ranking, old, old) == 0 then redis.call('ZREM', levels, old) end
      if summed == '1' then grow(suffix, -tonumber(old)) end
    end
  elseif score then
    if not tag then
      local number = tonumber(offset)
      tag = struct.pack('>I5I3', ties == 'falling' and 1099511627775 - number or number, 1)
      redis.call('HSET', reached, member, tag)
    end
    redis.call('ZADD', ranking, digits(score), tag .. member)
    if ranks == 'dense' then redis.call('ZADD', levels, digits(score), digits(score)) end
    if summed == '1' then grow(suffix, score) end
    if cap > 0 then cut(suffix, slot, ranking, reached, levels, metadata) end
  elseif tag then
    redis.call('HDEL', reached, member)
  end
end
return {'ok', offset}
