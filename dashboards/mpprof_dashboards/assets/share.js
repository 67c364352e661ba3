/* Sharing: the link, the report as Markdown, one HTML file, and a picture that the browser draws of the page. */
(function () {
  "use strict";
  var LEFT_OUT = ".mp-button, .modebar, .mp-copy, .mp-rows-filters, .mp-rows-bar";

  function say(text) {
    var status = document.getElementById("share-said");
    if (status) status.textContent = text;
  }
  function copy(text, said) {
    if (!navigator.clipboard) throw new Error("browsers copy only from https:// and from this machine");
    return navigator.clipboard.writeText(text).then(function () {
      say(said);
    });
  }
  function choice() {
    var asked = new URLSearchParams(window.location.search);
    var kept = new URLSearchParams();
    ["run", "baseline", "step"].forEach(function (key) {
      if (asked.has(key)) kept.set(key, asked.get(key));
    });
    return kept.toString();
  }
  function download(blob, name) {
    var link = document.createElement("a");
    link.href = URL.createObjectURL(blob);
    link.download = name;
    document.body.appendChild(link);
    link.click();
    link.remove();
    setTimeout(function () {
      URL.revokeObjectURL(link.href);
    }, 10000);
  }
  /* The page as a picture: its own elements with its own style sheet inside an SVG, drawn to a canvas. */
  function picture() {
    var main = document.querySelector("main");
    var clone = main.cloneNode(true);
    clone.querySelectorAll(LEFT_OUT).forEach(function (each) {
      each.remove();
    });
    var drawn = main.querySelectorAll("canvas");
    clone.querySelectorAll("canvas").forEach(function (canvas, at) {
      var image = document.createElement("img");
      image.src = drawn[at].toDataURL();
      image.style.width = drawn[at].clientWidth + "px";
      canvas.replaceWith(image);
    });
    clone.querySelectorAll("script, iframe").forEach(function (each) {
      each.remove();
    });
    var width = main.clientWidth;
    var height = main.scrollHeight;
    var scale = Math.min(2, 16000 / height, 16000 / width);
    return fetch(window.mpprof.at("/assets/mpprof.css"))
      .then(function (answer) {
        return answer.text();
      })
      .then(function (css) {
        var page = document.createElement("div");
        page.setAttribute("xmlns", "http://www.w3.org/1999/xhtml");
        var ground = getComputedStyle(document.body);
        page.setAttribute(
          "style",
          "background:" + ground.backgroundColor + ";color:" + ground.color + ";font:" + ground.font + ";width:" + width + "px"
        );
        var sheet = document.createElement("style");
        var rootStyle = getComputedStyle(document.documentElement);
        var names = css.match(/--mp-[a-z-]+(?=:)/g).filter(function (name, at, all) {
          return all.indexOf(name) === at;
        });
        var values = names.map(function (name) {
          return name + ":" + rootStyle.getPropertyValue(name);
        });
        sheet.textContent = css + " div.mp-picture{" + values.join(";") + "}";
        page.className = "mp-picture";
        page.appendChild(sheet);
        page.appendChild(clone);
        var text = new XMLSerializer().serializeToString(page);
        var svg =
          '<svg xmlns="http://www.w3.org/2000/svg" width="' + width + '" height="' + height + '">' +
          '<foreignObject width="100%" height="100%">' + text + "</foreignObject></svg>";
        return new Promise(function (resolve, reject) {
          var image = new Image();
          image.onload = function () {
            var canvas = document.createElement("canvas");
            canvas.width = Math.round(width * scale);
            canvas.height = Math.round(height * scale);
            var context = canvas.getContext("2d");
            context.fillStyle = ground.backgroundColor;
            context.fillRect(0, 0, canvas.width, canvas.height);
            context.scale(scale, scale);
            context.drawImage(image, 0, 0);
            canvas.toBlob(resolve, "image/png");
          };
          image.onerror = function () {
            reject(new Error("the browser could not draw the page"));
          };
          image.src = "data:image/svg+xml;charset=utf-8," + encodeURIComponent(svg);
        });
      })
      .then(function (blob) {
        download(blob, window.mpprof.file("", "png"));
        say("saved as PNG");
      });
  }
  var DOES = {
    link: function () {
      return copy(window.location.href, "link copied");
    },
    markdown: function () {
      return fetch(window.mpprof.at("/report.md?") + choice())
        .then(function (answer) {
          return answer.ok ? answer.text() : Promise.reject(new Error(String(answer.status)));
        })
        .then(function (text) {
          return copy(text, "Markdown copied");
        });
    },
    png: picture,
    html: function () {
      window.location.assign(window.mpprof.at("/report.html?") + choice());
    },
    redacted: function () {
      window.location.assign(window.mpprof.at("/report.html?") + choice() + "&redacted=1");
    },
  };
  document.addEventListener("click", function (event) {
    var button = event.target.closest && event.target.closest("[data-share]");
    if (!button) {
      var menu = document.getElementById("share");
      if (menu && menu.open && !menu.contains(event.target)) menu.open = false;
      return;
    }
    Promise.resolve().then(DOES[button.dataset.share]).catch(function (error) {
      say("failed: " + error.message);
    });
  });
})();
