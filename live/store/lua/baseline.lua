#!lua
-- Keeps the first records of a ranking as the baseline against which movement is measured: once in each hour, and while
-- the baseline is empty once in each minute. The board's position stays the same.
-- KEYS[1] ranking — sorted set: name, score
-- KEYS[2] levels — sorted set: each score in the ranking
-- KEYS[3] meta — hash: the board's state
-- KEYS[4] baseline — hash: epoch, suffix, time (ms) and count of the baseline, and its records, as packed by `cmsgpack`:
--         {member, score, ...}; the number of all records (ranked), the sum of all amounts that the board has counted
--         (gained), and time and sum of the baseline before (prior, prior_gained)
-- Request: BaselineRequest
-- Returns {'ok', time, wait, count, gained, prior, prior_gained} — the time of the baseline, the time until the next one
--         is due, both in milliseconds, the number of its records, and the sums as in the baseline; a value that is not
--         known is false
--         {'epoch', epoch} — the board has another epoch; '' if there is no board
--         {'replan', newest, now, latest} — the caller is wrong about the board's clock
--         {'reign', offset, link, epoch, resending} — nobody has checked the board after a failover; see `lib/reign`
local request = cmsgpack.unpack(ARGV[1])
local reign = ARGV[2] or ''
local ranking, levels, meta, baseline = unpack(KEYS)
--@include reign
--@include clock
--@include order
--@include page
local MINUTE, HOUR = 60000, 3600000

local state = redis.call('HMGET', meta, 'epoch', 'newest', 'latest', 'reign', 'gained')
local newest = tonumber(state[2])
if state[1] ~= request.epoch then return {'epoch', state[1] or ''} end
local refused = unchecked(state[4])
if refused then return refused end
if not fits(request.clock, newest, nil) then return replan(newest, tonumber(state[3])) end

local function wait_of(count)
  local span, plan = count > 0 and HOUR or MINUTE, request.clock
  local wait = span - now % span
  if request.suffix ~= '' and plan.till then wait = math.min(wait, plan.till - now) end  -- a new period begins then
  return digits(wait)
end

local held = redis.call('HMGET', baseline, 'epoch', 'suffix', 'time', 'count', 'gained', 'prior', 'prior_gained')
local taken, kept = tonumber(held[3]), tonumber(held[4] or 0)
if held[1] == request.epoch and held[2] == request.suffix then
  local span = kept > 0 and HOUR or MINUTE
  if math.floor(taken / span) == math.floor(now / span) then
    return {'ok', digits(taken), wait_of(kept), kept, held[5], held[6], held[7]}
  end
end

local ranked = redis.call('ZCARD', ranking)
local rows = rows_at(0, request.limit, ranked)
if view.tagged then
  for i = 1, #rows, 2 do rows[i] = string.sub(rows[i], 15) end
end
local count = #rows / 2
redis.call('HSET', baseline, 'epoch', request.epoch, 'suffix', request.suffix, 'time', digits(now), 'count', count,
  'records', cmsgpack.pack(rows), 'ranked', ranked, 'gained', state[5] or 0)
local prior = held[1] == request.epoch and held[5] and held[3]
if prior then
  redis.call('HSET', baseline, 'prior', prior, 'prior_gained', held[5])
else
  redis.call('HDEL', baseline, 'prior', 'prior_gained')
end
return {'ok', digits(now), wait_of(count), count, state[5] or '0', prior, prior and held[5]}
