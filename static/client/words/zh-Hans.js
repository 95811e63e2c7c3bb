// @ts-check
/**
 * What a board says, in simplified Chinese.
 *
 * @type {import("../language.js").Table}
 */
export default {
  "live": "实时",
  "frozen": "已冻结：不再接受新事件",
  "closed": "投票已结束",
  "paused": "已暂停",
  "waiting": { "other": "已暂停，有 {n} 处变化待显示" },
  "stale": "自 {time} 起未更新",
  "stale_because": "自 {time} 起未更新：{reason}",
  "reconnecting": "正在重新连接",
  "reconnecting_in": "{n} 秒后重新连接",
  "ended": "已结束",
  "ended_because": "已结束：{reason}",
  "offline": "离线：没有网络",
  "connecting": "正在连接",
  "reason: store unreachable": "无法连接数据存储",
  "reason: the store lost the board's data": "数据存储丢失了此榜单的数据",
  "reason: board deleted": "榜单已被删除",
  "reason: API key revoked": "访问密钥已被撤销",
  "reason: bad request": "服务器无法识别此页面，请刷新",
  "reason: There is no such board": "没有这个榜单",
  "blank": "⟨空白⟩",
  "tied": "并列",
  "gap": "距第 {rank} 名 {gap}",
  "not_ranked": "未上榜",
  "rank": "第 {n} 名",
  "behind": "，距上一名 {n}",
  "tied_with_next": "，与上一名并列",
  "place": "你的名次：{place}",
  "takes_first": "{name} 升至第一",
  "takes_first_and_you": "{name} 升至第一；你是{place}",
  "month_names": "1 2 3 4 5 6 7 8 9 10 11 12",
  "hour": "{year}年{month}月{day}日 {time} 起的一小时",
  "day": "{year}年{month}月{day}日",
  "week": "{year}年第{week}周",
  "month": "{year}年{month}月",
  "quarter": "{year}年第{quarter}季度",
  "year": "{year}年",
  "in_zone": "{period}（{zone}）"
};
