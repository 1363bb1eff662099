import{_ as e,a as t,k as n,r}from"./time-BEUHyxl8.js";import{plainText as i}from"./compare-BqMuKsrP.js";function a(e,t,n){let r=URL.createObjectURL(new Blob([e],{type:t})),i=document.createElement(`a`);i.href=r,i.download=n,i.click(),setTimeout(()=>URL.revokeObjectURL(r),1e4)}function o(e,t,n){return`${e.replaceAll(/[^\p{L}\p{N}]+/gu,`-`).replaceAll(/^-|-$/g,``).slice(0,60)||t}.${n}`}async function s(t){let n=[],r=null;do{let i=await e.session(t).history({limit:500,...r!==null&&{before:r}});n.unshift(...i.messages),r=i.next_before}while(r!==null);return n}var c=({role:e,name:t})=>e===`user`?t===`user`||!t?`You`:t:t||e;function l(e){let t=Math.max(2,...[...e.matchAll(/`+/g)].map(([e])=>e.length));return"`".repeat(t+1)}function u(e,n){let a=[`# ${e.replaceAll(/\s+/g,` `)}`];for(let e of n){a.push(`## ${c(e)}, ${t(e.created_at??``)} ${r(e.created_at??``)}`);for(let t of e.content)if(t.type===`text`)a.push(t.text);else if(t.type!==`thinking`){let e=i({content:[t]});e!==``&&a.push(`${l(e)}text\n${e}\n${l(e)}`)}}return`${a.join(`

`)}\n`}var d=e=>e.replaceAll(`&`,`&amp;`).replaceAll(`<`,`&lt;`).replaceAll(`>`,`&gt;`).replaceAll(`"`,`&quot;`);function f(e,n){let a=n.map(e=>{let n=e.content.flatMap(e=>{if(e.type===`thinking`)return[];let t=i({content:[e]}),n=e.type===`text`?`p`:`pre`;return t===``?[]:[`<${n} dir="auto">${d(t)}</${n}>`]});return`<article class="${e.role===`user`?`user`:`agent`}">
<header><b><bdi>${d(c(e))}</bdi></b> <time>${d(`${t(e.created_at??``)} ${r(e.created_at??``)}`)}</time></header>
${n.join(`
`)}
</article>`});return`<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>${d(e)}</title>
<style>
:root { color-scheme: light dark; font: 15px/1.6 system-ui, sans-serif; }
body { max-width: 780px; margin: 24px auto; padding: 0 16px; }
p, pre { white-space: pre-wrap; overflow-wrap: anywhere; unicode-bidi: plaintext; }
pre { padding: 8px 12px; border: 1px solid #8886; border-radius: 8px; font-size: 13px; }
article { margin: 0 0 20px; }
.user p { padding: 8px 14px; border-radius: 12px; background: #0f766e22; }
time { color: #888; font-size: 13px; }
</style>
</head>
<body>
<h1>${d(e)}</h1>
${a.join(`
`)}
</body>
</html>
`}async function p(t,n,r){let i=o(n,t,r);if(r===`ndjson`)return a(await e.session(t).export(),`application/x-ndjson`,i);let c=await s(t);r===`md`?a(u(n,c),`text/markdown`,i):a(f(n,c),`text/html`,i)}var m=1e3;async function h(t,r){let i=t.split(`
`).filter(e=>e.trim()!==``).map((e,t)=>{try{return JSON.parse(e)}catch{throw Error(`Line ${t+1} is not valid JSON.`)}}).filter(({type:e})=>e!==`USER_CONFIRM_RESULT`&&e!==`USER_INTERRUPT`);if(i.length===0)throw Error(`The file has no events.`);let a=n();await e.create({id:a,agent:`external`,title:r,metadata:{imported:!0}});let{http:o}=e.session(a),s=`/v1/sessions/${encodeURIComponent(a)}/events?tolerant=true`;for(let e=0;e<i.length;e+=m){let t=i.slice(e,e+m).map((t,n)=>JSON.stringify({...t,id:t.id??`${a}-${e+n}`,seq:void 0})).join(`
`);await o.ask(`POST`,s,{body:t,headers:{"content-type":`application/x-ndjson`,"turnwire-producer":`console-import.1`}})}return a}export{p as exportAs,h as importLog};