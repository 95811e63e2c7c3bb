#!lua
-- Counts a batch in its slots and rankings as planned, or changes nothing and returns the reason.
--
-- Every check comes before the first write, and nothing after the first write can fail. All numbers are whole and
-- exact. The script first looks for events that it has counted before. So a repeated event is always reported as
-- repeated, even if the board takes no events by now.
-- KEYS meta, slots, writers, log, taken, entrants, hidden, journal
-- KEYS more... — for each group of the batch: slot, ranking, reached, levels, metadata, votes; for a correction or a
--         merge: all slots of the board; for a batch with identities: their buckets, newest first, then the one to drop
-- Request: AddRequest
-- Returns {'ok', offset, widest, {value, ...}} — widest is the largest absolute value in a slot; then, if the request
--         asks for it, the value that each member of each group had to beat, '' for none
--         {'ok', offset} — this batch was applied before
--         {'paused', ms} — the contents of the board are about to be replaced: ask again
--         {'ruled'} — the board has other rules than the plan: open it again
--         {'stale'} — a later batch of this writer was applied
--         {'replan', newest, now, latest, bucket} — the plan does not fit the board's clock; now in milliseconds
--         {'seen', i...} — these identities (i counts from 1) were counted before: plan again without them
--         {'frozen'} — the board takes no events
--         {'changed'} — a member that is corrected or merged does not hold what the caller has read
--         {'nothing'} — the plan fits the board's clock, but it refuses every event of the batch
--         {'unregistered', member...} — these members are not registered
--         {'votes', i, code, ...} — these votes (i counts from 1) are refused: plan again without them
--         {'behind'} — too many slots wait to be subtracted
--         {'backlog', bytes} — so much of the journal waits to be moved to SQL
--         {'crowded', start, member, ...} — these members are new in these slots, and there is no room for them
--         {'range', start, member, held, ...} — these values would leave the range; held is the value so far, or
--         for a log the sum of all absolute amounts. Where fields add up, for a log the value so far and, after a
--         space, the sum of the negative amounts, without their sign
packed = request.batch  -- the journal gets these bytes
local batch = cmsgpack.unpack(request.batch)
local identities, groups, rules, place = batch.identities, batch.groups or {}, batch.rules, 9
for i = 1, #groups do
  local group, ranking = groups[i], {suffix = groups[i].suffix}
  group.slot, ranking.key, ranking.reached, ranking.levels, ranking.metadata, group.voters =
    unpack(KEYS, place, place + 5)
  group.ranking, place = ranking, place + 6
end
local held = request.held and {unpack(KEYS, place, place + #request.held.starts - 1)} or {}
local buckets = {unpack(KEYS, place + #held)}
--@include ranking
--@include journal
--@include opened
local last = call('HGET', writers, request.writer)
if last then  -- each writer numbers its batches: was this one applied before?
  local sequence, offset = string.match(last, '^(%d+) (%d+)')
  sequence = tonumber(sequence)
  if sequence == request.sequence then return {'ok', offset} end
  if sequence > request.sequence then return {'stale'} end
end
-- `paused` is the time (ms) until which the board is paused. If that is more than ten seconds ahead, the clock was set
-- back since.
local left = board.paused and tonumber(board.paused) - store_now or 0
if left > 0 and left <= 10000 then return {'paused', digits(left)} end
--@include ruled
--@include repeated
if board.frozen then return {'frozen'} end
if #groups == 0 then return {'nothing'} end
--@include held
if board.journal and request.backlog then
  local waiting = tonumber(string.match(board.journal, '%d+$')) - tonumber(call('HGET', meta, 'drained') or 0)
  if waiting + #packed > request.backlog then return {'backlog', digits(waiting)} end
end
--@include values
--@include votes
--@include room
--@include log
--@include range
announce(board)
record(board, 'add', request.writer, request.sequence)
--@include count
if add_to_log then add_to_log() end
record_tags(board, granted)
if own > 0 then
  if call('EXISTS', buckets[1]) == 0 then
    call('UNLINK', buckets[#buckets])
    call('HSET', meta, 'bucket', digits(bucket))
  end
  call('SADD', buckets[1], unpack(identities.all, 1, own))
  call('EXPIREAT', buckets[1], digits(bucket + identities.kept))  -- the bucket ends even if no later one replaces it
end
if latest and batch.by_event and latest > (board.latest or -1e15) then call('HSET', meta, 'latest', latest) end
local offset
if counted == 0 then
  offset = commit(board, 'newest', batch.reached, 'used', store_now)
else
  offset = commit(board, 'newest', batch.reached, 'used', store_now, 'gained', digits(board.gained + counted))
end
call('HSET', writers, request.writer, request.sequence .. ' ' .. offset .. ' ' .. seconds)
local beaten = request.beaten and {}
for i = 1, beaten and #groups or 0 do
  local group = groups[i]
  for j = 1, #group.members do
    -- If the ranking did not keep a member, return its own value: the member has not beaten that.
    local is_out = group.new[j] == false and not group.unseen[j]
    local value = is_out and group.values[j] or group.olds[j]
    beaten[#beaten + 1] = value and digits(value) or ''
  end
end
return {'ok', offset, digits(widest), beaten or nil}
