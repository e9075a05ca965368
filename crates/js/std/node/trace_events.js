export const createTracing = undefined;
export const getEnabledCategories = () => undefined;

export default { getEnabledCategories };
