#!lua flags=no-writes
-- Reads a piece of the contestants that are not hidden, at one instant: all, or only those that have no votes.
-- KEYS ranking, reached, hidden, meta, entrants
-- Request: ContestantsRequest
-- Returns {epoch, offset, cursor, {member, JSON, score, ...}} — epoch is '' for no board; the cursor of the next piece is
--         '0' at the end; the score is '' without votes
--@include position
local head, refusal = current_position()
if refusal then return refusal end

local piece = redis.call('HSCAN', entrants, request.cursor, 'COUNT', request.count)
local found, members, names, left = piece[2], {}, {}, {}
if #found > 0 then
  for i = 1, #found, 2 do members[#members + 1] = found[i] end
  local tags = request.view.tagged and redis.call('HMGET', reached, unpack(members))
  for i, member in ipairs(members) do names[i] = tags and (tags[i] or '') .. member or member end
  local scores, unseen = redis.call('ZMSCORE', ranking, unpack(names)), redis.call('HMGET', hidden, unpack(members))
  for i, member in ipairs(members) do
    if not unseen[i] and (request.voted or not scores[i]) then
      local last = #left
      left[last + 1], left[last + 2], left[last + 3] = member, found[2 * i], scores[i] or ''
    end
  end
end
return {head.epoch, head.offset, piece[1], left}
