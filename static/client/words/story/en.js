// @ts-check
/** The words of what a page loads after it is live, in English. The server reads this table too: it is JSON. */
export const storyTable = {
  "copied": "Copied",
  "not_copied": "Select the text and copy it",
  "place": "Your place: {place}",
  "story": "{name} {what}",
  "story_and_you": "{story}; you are {place}",
  "takes_first": "takes first",
  "takes_first_from": "takes first from {other}",
  "enters_top": "enters the top ten at {rank}",
  "leads_by": "leads by {by}",
  "passed": "▲{rows} passed {name}",
  "moves_waiting": { "one": "{n} move waiting", "other": "{n} moves waiting" },
  "pace": "{pace}/h",
  "passes": "passes {rank} in ~{minutes} min",
  "passes_soon": "passes {rank} within a minute",
  "more": "▲ {n}% on the hour before",
  "less": "▼ {n}% on the hour before",
  "same": "as in the hour before",
  "more_members": "+{n} new",
  "fewer_members": "−{n}",
  "apart": "{n} apart",
  "apart_changed": "{n} apart, changed {times}×",
  "gains": "{rank} gains {pace}",
  "since_time": "since {time}",
  "climbs": "up {by} to {rank}",
  "climbs_in": "up {by} to {rank} in {minutes} min"
};
