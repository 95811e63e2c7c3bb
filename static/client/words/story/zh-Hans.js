// @ts-check
/** The words of what a page loads after it is live, in simplified Chinese. */

/** @type {import("../../language.js").StoryTable} */
export const storyTable = {
  "leader_title": "{name} 领先",
  "found_none": "没有叫“{name}”的成员，也没有以它开头的名称或标题。",
  "found_more": "还有更多，请输入更多字符。",
  "found_part": "榜单很大，无法查看每个名称。请输入完整的名称。",
  "copied": "已复制",
  "not_copied": "请选中文字并复制",
  "place": "你的名次：{place}",
  "story": "{name}{what}",
  "story_and_you": "{story}；你是{place}",
  "takes_first": "升至第一",
  "takes_first_from": "取代{other}升至第一",
  "enters_top": "进入前十，位列第 {rank}",
  "leads_by": "领先 {by}",
  "passed": "▲{rows} 超过 {name}",
  "moves_waiting": { "other": "有 {n} 次移动待显示" },
  "pace": "{pace}/时",
  "passes": "约 {minutes} 分钟后超过第 {rank}",
  "passes_soon": "一分钟内超过第 {rank}",
  "more": "▲ 比前一小时高 {n}%",
  "less": "▼ 比前一小时低 {n}%",
  "same": "与前一小时相同",
  "more_members": "新增 {n}",
  "fewer_members": "减少 {n}",
  "apart": "相差 {n}",
  "apart_changed": "相差 {n}，易位 {times} 次",
  "gains": "第 {rank} 名 {pace}",
  "since_time": "自 {time} 起",
  "away": { "other": "在你离开的 {n} 分钟里" },
  "close": "关闭",
  "tape": "自 {time} 起前十名的名次",
  "climbs": "上升 {by} 名至第 {rank}",
  "climbs_in": "{minutes} 分钟内上升 {by} 名至第 {rank}"
};
