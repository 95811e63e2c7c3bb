-- The check of boards after a failover. `reign` tells the reigns of servers apart: it is the replication id of the
-- server, which is new after each promotion, and empty if no replica can be promoted. The field `reign` of a board's
-- state says under which reign the board was last checked.

-- Returns the reply to the caller of a board that nobody has checked under this reign, and else nil. `resending` is ''
-- unless somebody has begun to send again what a failover lost.
local function unchecked(held)
  if reign == '' or held == reign then return end
  local at = redis.call('HMGET', meta, 'offset', 'journal', 'epoch', 'resending')
  if at[3] then return {'reign', at[1] or '0', at[2] or '', at[3], at[4] or ''} end
end

-- Returns the epoch that clients see. If the board was checked under a reign (`held`), it ends in four digits of that.
local function shown(epoch, held)
  return held and epoch .. string.sub(held, 1, 4) or epoch
end
