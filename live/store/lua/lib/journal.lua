-- The journal: every change is appended to a stream of the board's epoch (`journal`), from which it moves to SQL.
--
-- The field `journal` of the board's state holds "id time writer sequence bytes" of the last entry: `time` in
-- microseconds, `bytes` the size of all entries so far. Each entry names the entry before it, so that its reader
-- notices when an entry is missing, and when the store went back in time.
--
-- A reader of the journal knows from the clock which events have left a sliding window, unless the clock was set back.
-- For that case, the field `left` holds "clock time offset number": the clock (ms) when the last event left, and the
-- time (ms), offset and number of this event. NONE_LEFT means that the entries say which events have left. Boards
-- without a sliding window, or with `clock = "event"`, have no such field.
local NONE_LEFT = '0 0 0 0'

-- Appends an entry. Afterwards, the caller writes `board.journal` to the board's state, as `commit` does.
local function append(board, id, kind, writer, sequence, payload)
  local before, bytes = string.match(board.journal, '^(.*) (%d+)$')
  bytes = digits(bytes + #payload)
  local own = string.format('%s %s%06d %s %s', id, time[1], time[2], writer, sequence)
  call('XADD', journal, id, 'h', kind .. ' ' .. bytes .. ' ' .. own .. ' ' .. before, 'd', payload)
  board.journal, board.appended = own .. ' ' .. bytes, true
end

-- If the clock was set back, appends an entry that says which events have left a sliding window. Call this before the
-- next entry is appended.
local function record_left(board)
  if not board.left then return end
  local clock, left, offset, number = string.match(board.left, '^(%S+) (%S+) (%S+) (%S+)$')
  local last = string.match(board.journal, '^%S+ (%d+)')
  if now >= tonumber(clock) and time[1] * 1000000 + time[2] >= tonumber(last) then return end
  append(board, board.place .. '-0', 'left', '-', 0,
    cmsgpack.pack({tonumber(left), tonumber(offset), tonumber(number)}))
  board.left, board.told = NONE_LEFT, 1
  call('HSET', meta, 'left', NONE_LEFT)
end

-- Appends the request of a script, or another payload. Does nothing if the board has no journal.
local function record(board, kind, writer, sequence, payload)
  if board.journal then
    record_left(board)
    append(board, board.place .. '-' .. (board.told or 0), kind, writer or '-', sequence or 0, payload or packed)
  end
end

-- Appends the tags that members received or lost without an event: only the script knows when a sum becomes zero, and in
-- which order it found the members. A member without a tag has the number 0.
local function record_tags(board, granted)
  if board.journal and #granted > 0 then
    record_left(board)
    append(board, board.place .. '-' .. 1 + (board.told or 0), 'tags', '-', 0, cmsgpack.pack(granted))
  end
end
