// uPlot, loaded when the first chart is shown.
import uPlot from 'uplot';

export default uPlot;
