-- The check of boards after a failover. `reign` tells the reigns of servers apart: it is the replication id of the
-- server, which is new after each promotion, and empty if no replica can be promoted. The field `reign` of a board's
-- state says under which reign the board was last checked.

-- Returns {'reign', offset, link, epoch, behind} — nobody has checked the board under this reign. `link` names the last
-- entry of its journal, and `behind` is '' unless somebody writes what a failover lost (see `fence.lua`).
-- Returns nil if the board is checked.
local function unchecked(held)
  local behind = held == 'behind'
  if not behind and (reign == '' or held == reign) then return end
  local at = redis.call('HMGET', meta, 'offset', 'journal', 'epoch')
  if at[3] then return {'reign', at[1] or '0', at[2] or '', at[3], behind and '1' or ''} end
end

-- Returns the epoch that clients see. If the board was checked under a reign (`held`), it has four digits of that. After
-- a swap, it ends in the number of the edition.
local function shown(epoch, held, edition)
  return epoch .. (held and string.sub(held, 1, 4) or '') .. (edition and 'e' .. edition or '')
end
