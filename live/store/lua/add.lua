#!lua
-- Counts a batch in its slots and rankings as planned, or changes nothing and returns the reason.
--
-- Every check comes before the first write, and nothing after the first write can fail. All numbers are whole and
-- exact. The script first looks for events that it has counted before. So a repeated event is always reported as
-- repeated, even if the board takes no events by now.
-- KEYS[1] meta — hash: the board's state
-- KEYS[2] slots — sorted set: the start of every slot, scored by itself
-- KEYS[3] writers — hash: writer, "sequence offset seconds" of its last batch
-- KEYS[4] log — sorted set: the events of a sliding window, scored by their time (ms)
-- KEYS[5] taken — hash: member, absolute sum of its negative amounts in the log; and if a sum of zero is a score, a zero
--         byte and the member, the number of its events in the log
-- KEYS[6] entrants — hash: the registered members, if the board counts only those
-- KEYS[7] hidden — hash: the members without a rank
-- KEYS[8] journal — stream: what SQL does not hold yet
-- KEYS[9...] more — the request has the indexes of these store keys:
--         the buckets of identities (sets), newest first, and then the one to drop;
--         for each group:
--             slot (hash: member, value);
--             ranking (sorted set: name, score);
--             reached (hash: member, tag);
--             levels (sorted set: each score in the ranking);
--             metadata (hash: member, JSON);
--             votes (hash: voter digest, count);
--         for a correction or a merge, all slots of the board
-- Request: AddRequest
-- Returns {'ok', offset, widest, {value, ...}} — widest is the largest absolute value in a slot; then, if the request
--         asks for it, the value that each member of each group had to beat, '' for none
--         {'ok', offset} — this batch was applied before
--         {'epoch', epoch} — the board has another epoch; '' if there is no board
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
--         {'reign', offset, link, epoch, resending} — nobody has checked the board after a failover; see `lib/reign`
local packed = ARGV[1]
local request = cmsgpack.unpack(packed)
local reign = ARGV[2] or ''
local meta, slots, writers, log, taken, entrants, hidden, journal = unpack(KEYS, 1, 8)
local identities, groups = request.identities, request.groups
local buckets = identities and {unpack(KEYS, identities.newest, identities.oldest + 1)}
local held = request.held and {unpack(KEYS, request.held.keys, request.held.keys + #request.held.starts - 1)}
for i = 1, groups and #groups or 0 do
  local group, ranking = groups[i], {suffix = groups[i].suffix}
  group.slot, ranking.key, ranking.reached, ranking.levels, ranking.metadata, group.voters =
    unpack(KEYS, group.keys, group.keys + 5)
  group.ranking = ranking
end
--@include clock
--@include reign
--@include board
--@include ranking
--@include journal
--@include same_slots
local board, refusal = open_board()
if refusal then return refusal end
--@include numbered
--@include repeated
if board.frozen then return {'frozen'} end
if not groups then return {'nothing'} end
--@include held
--@include backlog
--@include values
--@include votes
--@include room
--@include fields
--@include log
--@include range
announce(board)
board.newest = request.reached
if name_left then name_left(board) end
record(board, 'add', request.writer, request.sequence)
--@include count
if add_to_log then add_to_log() end
record_tags(board, granted)
if identities and identities.counted then
  if call('EXISTS', buckets[1]) == 0 then
    call('UNLINK', buckets[#buckets])
    call('HSET', meta, 'bucket', digits(bucket))
  end
  call('SADD', buckets[1], unpack(identities.all, 1, identities.counted))
  call('EXPIREAT', buckets[1], digits(bucket + identities.kept))  -- the bucket ends even if no later one replaces it
end
if board.made then call('HSET', meta, 'used', now) end  -- a board created at run time expires when nobody uses it
if latest and request.clock.by_event and latest > (board.latest or -1e15) then call('HSET', meta, 'latest', latest) end
local offset
if counted == 0 then
  offset = commit(board, 'newest', request.reached)
else
  offset = commit(board, 'newest', request.reached, 'gained', digits(board.gained + counted))
end
call('HSET', writers, request.writer, request.sequence .. ' ' .. offset .. ' ' .. time[1])
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
